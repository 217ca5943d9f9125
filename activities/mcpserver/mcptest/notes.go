// Package mcptest is a small MCP server for tests: a store of notes, each a file, and an outbox,
// which cannot be taken back. It is written with the official SDK and can fail as real servers do.
package mcptest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// folderVariable makes a program the server of a folder.
const folderVariable = "UNWIND_TEST_NOTES"

// Faults of calls that change something. Each is the content of the file "fault" in the folder.
const (
	Lose   = "lose"   // acts, and dies before it answers
	Deny   = "deny"   // acts, and answers with an error
	Break  = "break"  // acts, and answers with an error of the protocol
	Twice  = "twice"  // acts, and answers twice
	Task   = "task"   // acts, and answers with a task
	Later  = "later"  // answers with a task, and has not acted yet
	Hang   = "hang"   // acts, and never answers
	Slow   = "slow"   // answers, and has not acted yet
	Stall  = "stall"  // neither acts nor answers
	Refuse = "refuse" // answers with an error, and has not acted
)

// stalled is the file that shows that a call has come.
const stalled = "stalled"

// Declarations say how its tools are undone.
const Declarations = `
local: true
tools:
  get_note: {reads: true}
  find_notes: {reads: true}
  last_mail: {reads: true}
  learn: {reads: true}
  put_note:
    look: {tool: get_note, with: {id: "${{ arguments.id }}"}, absent: "^no note"}
    happened: {data: {body: "${{ arguments.body }}"}}
    undo:
      - when: {absent: true}
        tool: delete_note
        with: {id: "${{ arguments.id }}"}
        done: "^no note"
      - tool: put_note
        with: {id: "${{ arguments.id }}", body: "${{ before.data.body }}"}
  delete_note:
    look: {tool: get_note, with: {id: "${{ arguments.id }}"}, absent: "^no note"}
    happened: {absent: true}
    undo:
      - when: {absent: false}
        tool: put_note
        with: {id: "${{ arguments.id }}", body: "${{ before.data.body }}"}
  create_note:
    look: {tool: find_notes, with: {title: "${{ arguments.title }}"}}
    happened: {data: {notes: [{body: "${{ arguments.body }}"}]}}
    undo:
      - tool: delete_note
        with: {id: "${{ left.data.notes.0.id }}"}
        done: "^no note"
  create_blind:
    undo:
      - tool: delete_note
        with: {id: "${{ result.data.id }}"}
  send_mail:
    irreversible: true
    look: {tool: last_mail}
    happened: {data: {text: "${{ arguments.text }}"}}
`

// Note is a note.
type Note struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Body  string `json:"body"`
}

type mail struct {
	Text string `json:"text"`
}

// Attend makes this program the server if it was started as one. Call it first in TestMain.
func Attend() {
	attendHostile()
	dir := os.Getenv(folderVariable)
	if dir == "" {
		return
	}
	if err := newServer(dir).Run(context.Background(), transport{dir}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Start makes the folder, and returns the command line of the server and its environment.
func Start(dir string) (command string, env []string, err error) {
	err = os.MkdirAll(filepath.Join(dir, "notes"), 0o700)
	program, errProgram := os.Executable()
	// A program with the race detector sleeps for a second before it ends, if it is not told
	// otherwise.
	env = []string{folderVariable + "=" + dir, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	return "exec '" + program + "'", env, errors.Join(err, errProgram)
}

// Put writes a note, as someone else would.
func Put(dir string, n Note) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	staged := filepath.Join(dir, ".new-"+n.ID)
	return errors.Join(os.WriteFile(staged, raw, 0o600), os.Rename(staged, filepath.Join(dir, "notes", n.ID)))
}

// HasStalled reports whether the fault Stall has come to a call.
func HasStalled(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, stalled))
	return err == nil
}

// Manifest is all that the server keeps.
func Manifest(dir string) (string, error) {
	var b strings.Builder
	notes, err := os.ReadDir(filepath.Join(dir, "notes"))
	for _, each := range notes {
		raw, errRead := os.ReadFile(filepath.Join(dir, "notes", each.Name()))
		err = errors.Join(err, errRead)
		fmt.Fprintf(&b, "%s %s\n", each.Name(), raw)
	}
	mails, errMails := os.ReadFile(filepath.Join(dir, "mails"))
	if errMails != nil && !errors.Is(errMails, fs.ErrNotExist) {
		err = errors.Join(err, errMails)
	}
	return b.String() + string(mails), err
}

type server struct{ dir string }

func newServer(dir string) *sdk.Server {
	s := server{dir}
	it := sdk.NewServer(&sdk.Implementation{Name: "notes", Version: "1"}, s.options())
	it.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler { return tellOf(it, next) })
	s.addBesides(it)
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true}
	sdk.AddTool(it, &sdk.Tool{Name: "get_note", Description: "Reads a note.", Annotations: reads}, s.get)
	sdk.AddTool(it, &sdk.Tool{Name: "find_notes", Description: "Finds the notes with a title.", Annotations: reads},
		s.find)
	sdk.AddTool(it, &sdk.Tool{Name: "last_mail", Description: "Reads the last mail that was sent.", Annotations: reads},
		s.lastMail)
	sdk.AddTool(it,
		&sdk.Tool{Name: "count_notes", Description: "Counts the notes; it is not declared.", Annotations: reads}, s.count)
	sdk.AddTool(it,
		&sdk.Tool{Name: "learn", Description: "Adds a tool, a resource and a prompt to what it lists.", Annotations: reads},
		s.learn(it))
	sdk.AddTool(it, &sdk.Tool{Name: "put_note", Description: "Writes a note."}, changing(s, s.put))
	sdk.AddTool(it, &sdk.Tool{Name: "delete_note", Description: "Deletes a note."}, changing(s, s.remove))
	sdk.AddTool(it, &sdk.Tool{Name: "create_note", Description: "Makes a note with an id of its own."},
		changing(s, s.create))
	sdk.AddTool(it, &sdk.Tool{Name: "create_blind", Description: "Does the same; no look is declared."},
		changing(s, s.create))
	sdk.AddTool(it, &sdk.Tool{Name: "send_mail", Description: "Sends a mail."}, changing(s, s.send))
	return it
}

// isChanged means that the next answer is that of a call that has changed something.
var isChanged atomic.Bool

func changing[In, Out any](s server, do sdk.ToolHandlerFor[In, Out]) sdk.ToolHandlerFor[In, Out] {
	return func(ctx context.Context, r *sdk.CallToolRequest, in In) (result *sdk.CallToolResult, out Out, err error) {
		switch faultIn(s.dir) {
		case Refuse:
			return nil, out, errors.New("it is refused")
		case Stall:
			if err := os.WriteFile(filepath.Join(s.dir, stalled), nil, 0o600); err == nil {
				select {}
			}
		}
		result, out, err = do(ctx, r, in)
		if err == nil {
			isChanged.Store(true)
		}
		return result, out, err
	}
}

type byID struct {
	ID string `json:"id"`
}

func (s server) path(id string) string { return filepath.Join(s.dir, "notes", filepath.Base(id)) }

func (s server) read(id string) (n Note, err error) {
	raw, err := os.ReadFile(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return n, fmt.Errorf("no note %s", id)
	}
	if err == nil {
		err = json.Unmarshal(raw, &n)
	}
	return n, err
}

func (s server) get(_ context.Context, _ *sdk.CallToolRequest, in byID) (*sdk.CallToolResult, Note, error) {
	n, err := s.read(in.ID)
	return nil, n, err
}

type byTitle struct {
	Title string `json:"title"`
}

type found struct {
	Notes []Note `json:"notes"`
}

func (s server) find(_ context.Context, _ *sdk.CallToolRequest, in byTitle) (*sdk.CallToolResult, found, error) {
	all := found{Notes: []Note{}}
	files, err := os.ReadDir(filepath.Join(s.dir, "notes"))
	for _, each := range files {
		if n, errRead := s.read(each.Name()); errRead == nil && n.Title == in.Title {
			all.Notes = append(all.Notes, n)
		}
	}
	return nil, all, err
}

type counted struct {
	Count int `json:"count"`
}

func (s server) count(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, counted, error) {
	files, err := os.ReadDir(filepath.Join(s.dir, "notes"))
	return nil, counted{len(files)}, err
}

type putInput struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

func (s server) put(_ context.Context, _ *sdk.CallToolRequest, in putInput) (*sdk.CallToolResult, Note, error) {
	n := Note{ID: in.ID, Title: "note " + in.ID, Body: in.Body}
	if fault := faultIn(s.dir); fault == Later || fault == Slow {
		return nil, n, nil
	}
	return nil, n, Put(s.dir, n)
}

func (s server) remove(_ context.Context, _ *sdk.CallToolRequest, in byID) (*sdk.CallToolResult, byID, error) {
	err := os.Remove(s.path(in.ID))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no note %s", in.ID)
	}
	return nil, in, err
}

type createInput struct {
	Title string `json:"title"`
	Body  string `json:"body"`
}

func (s server) create(_ context.Context, _ *sdk.CallToolRequest, in createInput) (*sdk.CallToolResult, Note, error) {
	n := Note{ID: rand.Text(), Title: in.Title, Body: in.Body}
	return nil, n, Put(s.dir, n)
}

func (s server) mails() []string {
	raw, err := os.ReadFile(filepath.Join(s.dir, "mails"))
	if err != nil {
		return nil
	}
	return slices.Collect(strings.Lines(string(raw)))
}

func (s server) lastMail(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, mail, error) {
	all := s.mails()
	if len(all) == 0 {
		return nil, mail{}, nil
	}
	return nil, mail{strings.TrimSpace(all[len(all)-1])}, nil
}

func (s server) send(_ context.Context, _ *sdk.CallToolRequest, in mail) (*sdk.CallToolResult, mail, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "mails"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, in, err
	}
	defer f.Close()
	_, err = f.WriteString(in.Text + "\n")
	return nil, in, err
}

// transport is the standard streams, with the fault of the folder.
type transport struct{ dir string }

func (t transport) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := (&sdk.StdioTransport{}).Connect(ctx)
	return faulty{c, t.dir}, err
}

type faulty struct {
	sdk.Connection

	dir string
}

func (f faulty) Write(ctx context.Context, m jsonrpc.Message) error {
	r, isAnswer := m.(*jsonrpc.Response)
	if !isAnswer || !isChanged.Swap(false) {
		return f.Connection.Write(ctx, m)
	}
	switch faultIn(f.dir) {
	case Lose:
		os.Exit(1)
	case Hang:
		return nil
	case Deny:
		r.Result = json.RawMessage(`{"content":[{"type":"text","text":"it did not work"}],"isError":true}`)
	case Break:
		r.Result, r.Error = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "it broke"}
	case Task, Later:
		r.Result = json.RawMessage(`{"task":{"taskId":"t1","status":"working"}}`)
	case Twice:
		if err := f.Connection.Write(ctx, r); err != nil {
			return err
		}
	}
	return f.Connection.Write(ctx, r)
}

// faultIn is the fault of a folder; empty for none.
func faultIn(dir string) string {
	fault, err := os.ReadFile(filepath.Join(dir, "fault"))
	if err != nil {
		return ""
	}
	return string(fault)
}
