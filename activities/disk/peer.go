package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// peer is who answers commands in JSON at a Unix socket: the monitor of a machine (QMP), or the
// agent in its guest. Both serve one connection at a time, and one command after another: who has
// got an answer knows that those of earlier connections are over.
type peer struct {
	conn net.Conn
	in   *json.Decoder
}

// message is what a peer says: the answer to a command, or something that nobody has asked for.
type message struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

func dial(ctx context.Context, socket string) (*peer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &peer{conn, json.NewDecoder(conn)}, nil
}

func (p *peer) close() { p.conn.Close() }

// refusedError is what a peer has answered to a command that it has not carried out.
type refusedError struct{ command, desc string }

func (e *refusedError) Error() string { return e.command + ": " + e.desc }

// call sends a command and waits for its answer, for at most so long.
func (p *peer) call(ctx context.Context, within time.Duration, command string, args, result any) error {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Now()) })
	defer stop()
	if err := p.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	request := map[string]any{"execute": command}
	if args != nil {
		request["arguments"] = args
	}
	raw, err := json.Marshal(request)
	if err == nil {
		_, err = p.conn.Write(append(raw, '\n'))
	}
	for err == nil {
		var m message
		if err = p.in.Decode(&m); err != nil {
			break
		}
		switch {
		case m.Error != nil:
			return &refusedError{command, m.Error.Desc}
		case m.Return != nil && result == nil:
			return nil
		case m.Return != nil:
			return json.Unmarshal(m.Return, result)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if timeout, is := errors.AsType[net.Error](err); is && timeout.Timeout() {
		return fmt.Errorf("%s: no answer within %v; is another program connected to the socket?", command, within)
	}
	return fmt.Errorf("%s: %w", command, err)
}
