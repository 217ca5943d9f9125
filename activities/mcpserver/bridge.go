package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

// A server that is reached by URL is spoken to by a process of its own, the bridge, which takes
// messages on its standard input as a server does that is started by command. So the fence is the
// same: who ends the bridge ends what is still to be sent. What was sent can still arrive, as with
// every server that passes calls on.

const bridgeName = "unwind-mcp-bridge"

// listenAgain is the wait before the server is listened to again, whose stream has ended.
const listenAgain = time.Second

// endWithin bounds the request that ends the session at the server.
const endWithin = 2 * time.Second

var attended atomic.Bool

// Attend lets this program be the bridge to a server that is reached by URL. Call it first in main
// and in TestMain: it returns at once, except in such a process.
func Attend() {
	attended.Store(true)
	supervisor.Dispatch(bridgeName, runBridge)
}

// address is where a bridge leads. It comes through a pipe: the token is neither in the environment
// nor in the command line.
type address struct {
	URL   string `json:"url"`
	Token string `json:"token,omitempty"`
}

// newBridgeCommand returns the command of a bridge.
func newBridgeCommand() (*exec.Cmd, error) {
	if !attended.Load() {
		return nil, errors.New("this program does not call mcpserver.Attend in its main: it cannot reach a server by URL")
	}
	c := exec.Command("/proc/self/exe")
	c.Args = []string{bridgeName}
	return c, nil
}

// bridge carries messages to a server, and back.
type bridge struct {
	address

	client *http.Client
	lost   chan error // why it must end

	mu                sync.Mutex
	out               io.Writer
	session, protocol string // once they are agreed upon
}

// envelope is what matters of a message.
type envelope struct {
	ID     any             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (e envelope) isCall() bool { return e.Method != "" && e.ID != nil }

// answers reports whether it is the answer to a call.
func (e envelope) answers(call envelope) bool {
	return e.Method == "" && (e.Result != nil || e.Error != nil) && reflect.DeepEqual(e.ID, call.ID)
}

// isHarmless reports whether a call changes nothing, so that its failure can be told as an answer.
func (e envelope) isHarmless() bool { return e.isCall() && e.Method != "tools/call" }

func runBridge() error {
	in := bufio.NewReader(os.Stdin)
	job, err := in.ReadBytes('\n')
	b := &bridge{out: os.Stdout, lost: make(chan error, 1), client: &http.Client{
		// Another address was not agreed to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if err == nil {
		err = json.Unmarshal(job, &b.address)
	}
	if err != nil {
		return fmt.Errorf("no address: %w", err)
	}
	go func() { b.lost <- b.carry(in) }()
	return <-b.lost
}

// carry sends what comes in, until the worker closes it.
func (b *bridge) carry(in *bufio.Reader) error {
	for {
		raw, err := in.ReadBytes('\n')
		if err != nil {
			b.endSession()
			return nil //nolint:nilerr // the worker has ended, or needs it no longer
		}
		var m envelope
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		switch m.Method {
		case "initialize": // before all else
			b.send(m, raw)
		case "notifications/initialized":
			b.send(m, raw)
			go b.listen()
		default:
			go b.send(m, raw)
		}
	}
}

// refusals are statuses by which a server, or what stands before it, says that it has done nothing.
var refusals = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	http.StatusNotAcceptable,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	http.StatusTooManyRequests,
}

// send sends a message, and passes on what is answered. A call without an answer ends the bridge:
// what became of it is not known.
func (b *bridge) send(m envelope, raw []byte) {
	err := b.post(m, raw)
	switch {
	case err == nil:
	case m.Method == "": // an answer of ours, whose question may be gone
	case m.isHarmless():
		b.passError(m, err)
	default:
		b.lost <- fmt.Errorf("%s: %w", m.Method, err)
	}
}

func (b *bridge) post(m envelope, raw []byte) error {
	resp, err := b.do(context.Background(), http.MethodPost, raw)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read as far as it matters
	isOK := resp.StatusCode/100 == 2
	switch {
	case !isOK && m.isCall() && slices.Contains(refusals, resp.StatusCode):
		return b.passRefusal(m, resp)
	case !isOK:
		return errors.New(resp.Status)
	case !m.isCall():
		return nil
	}
	if m.Method == "initialize" {
		b.mu.Lock()
		b.session = resp.Header.Get("Mcp-Session-Id")
		b.mu.Unlock()
	}
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
	case "application/json":
		return b.passJSON(m, resp.Body)
	case "text/event-stream":
		return b.passEvents(m, resp.Body)
	default:
		return fmt.Errorf("it has answered with %q, which is no answer of the protocol", kind)
	}
}

// do makes a request. Its error does not show the address.
func (b *bridge) do(ctx context.Context, method string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its address cannot be used")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if b.Token != "" {
		r.Header.Set("Authorization", "Bearer "+b.Token)
	}
	b.mu.Lock()
	if b.session != "" {
		r.Header.Set("Mcp-Session-Id", b.session)
	}
	if b.protocol != "" {
		r.Header.Set("Mcp-Protocol-Version", b.protocol)
	}
	b.mu.Unlock()
	resp, err := b.client.Do(r)
	if shown, is := errors.AsType[*url.Error](err); is {
		err = shown.Err
	}
	return resp, err
}

// passJSON passes on an answer.
func (b *bridge) passJSON(call envelope, body io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(body, maxMessage))
	if err != nil {
		return err
	}
	isAnswer, err := b.pass(call, raw)
	if err == nil && !isAnswer {
		err = errors.New("it has answered something else")
	}
	return err
}

// listen passes on what the server tells without having been asked, if it does.
func (b *bridge) listen() {
	for again := time.Tick(listenAgain); ; <-again {
		resp, err := b.do(context.Background(), http.MethodGet, nil)
		if err != nil {
			continue
		}
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		isStream := resp.StatusCode == http.StatusOK && kind == "text/event-stream"
		if isStream {
			_ = readEvents(resp.Body, func(raw []byte) (isLast bool, err error) {
				var m envelope
				if json.Unmarshal(raw, &m) == nil && m.Method != "" { // answers come where they were asked for
					err = b.tell(raw)
				}
				return false, err
			})
		}
		_ = resp.Body.Close()
		if !isStream {
			return
		}
	}
}

// passEvents passes on what a stream of events holds, up to the answer.
func (b *bridge) passEvents(call envelope, body io.Reader) error {
	return readEvents(body, func(raw []byte) (isAnswer bool, err error) { return b.pass(call, raw) })
}

// readEvents takes the messages of a stream of events, up to the last one that matters.
func readEvents(body io.Reader, take func(raw []byte) (isLast bool, err error)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxMessage)
	var data []byte
	isMessage := true
	for lines.Scan() {
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(lines.Bytes()) == 0:
			if isMessage && len(data) > 0 {
				if isLast, err := take(data); err != nil || isLast {
					return err
				}
			}
			data, isMessage = nil, true
		case string(field) == "data":
			if data = append(append(data, value...), '\n'); len(data) > maxMessage {
				return errors.New("a message is too large")
			}
		case string(field) == "event":
			isMessage = string(value) == "message"
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the answer has ended before it was whole")
}

// pass passes a message on to the worker, and reports whether it is the answer to a call.
func (b *bridge) pass(call envelope, raw []byte) (isAnswer bool, err error) {
	var m envelope
	if err := json.Unmarshal(raw, &m); err != nil {
		return false, fmt.Errorf("a message is not JSON: %w", err)
	}
	isAnswer = m.answers(call)
	if isAnswer && call.Method == "initialize" {
		var agreed struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		_ = json.Unmarshal(m.Result, &agreed) // an error agrees to nothing
		b.mu.Lock()
		b.protocol = agreed.ProtocolVersion
		b.mu.Unlock()
	}
	return isAnswer, b.tell(raw)
}

// passRefusal answers a call as a server has that did nothing. A session that is gone ends the
// bridge: the next one begins another.
func (b *bridge) passRefusal(call envelope, resp *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
	var m envelope
	if err == nil && json.Unmarshal(raw, &m) == nil && m.answers(call) {
		err = b.tell(raw)
	} else {
		b.passError(call, errors.New(resp.Status))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && resp.StatusCode == http.StatusNotFound && b.session != "" {
		err = errors.New("its session has ended")
	}
	return err
}

// passError answers a call with an error.
func (b *bridge) passError(call envelope, why error) {
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": call.ID,
		"error": map[string]any{"code": -32000, "message": why.Error()}})
	_ = b.tell(raw) // a worker that no longer reads has ended
}

// tell writes a message for the worker, on one line.
func (b *bridge) tell(raw []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return err
	}
	line.WriteByte('\n')
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.out.Write(line.Bytes())
	return err
}

// endSession tells the server that nobody needs its session any more.
func (b *bridge) endSession() {
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if resp, err := b.do(ctx, http.MethodDelete, nil); err == nil {
		_ = resp.Body.Close()
	}
}
