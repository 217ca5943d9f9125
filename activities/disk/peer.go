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

// refusal is why a peer did not do a command.
type refusal struct{ command, why string }

func (e *refusal) Error() string { return e.command + ": " + e.why }

func dial(ctx context.Context, socket string) (*peer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &peer{conn, json.NewDecoder(conn)}, nil
}

func (p *peer) close() { p.conn.Close() }

// call sends a command and waits for its answer, for at most so long.
func (p *peer) call(ctx context.Context, within time.Duration, command string, args, result any) error {
	request := map[string]any{"execute": command}
	if args != nil {
		request["arguments"] = args
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := p.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := p.conn.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return p.hear(ctx, within, command, result)
}

// hear waits for the next answer.
func (p *peer) hear(ctx context.Context, within time.Duration, command string, result any) error {
	if err := p.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Now()) })
	defer stop()
	for {
		var m message
		err := p.in.Decode(&m)
		timeout, is := errors.AsType[net.Error](err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case is && timeout.Timeout():
			return fmt.Errorf("%s: no answer within %v; is another program connected to the socket?", command, within)
		case err != nil:
			return fmt.Errorf("%s: %w", command, err)
		case m.Error != nil:
			return &refusal{command, m.Error.Desc}
		case m.Return != nil && result == nil:
			return nil
		case m.Return != nil:
			return json.Unmarshal(m.Return, result)
		}
	}
}
