package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

// What a server sends is not trusted. These are the bounds on it, besides those of exactjson on the
// values of one message.
const (
	// startWithin bounds the start of a server: some are downloaded first.
	startWithin = 2 * time.Minute
	// listWithin bounds the reading of all tools.
	listWithin = 30 * time.Second
	// answerWithin bounds an answer where who waits sets no limit, as a client of a proxy does.
	answerWithin = 5 * time.Minute
	// leaveWithin is how long a server may take to end when its input is closed.
	leaveWithin = 5 * time.Second

	// maxMessage bounds one message, in bytes.
	maxMessage = 4 << 20
	// maxNotice bounds the parameters of one notification, in bytes: a thousand of them may wait for a
	// client.
	maxNotice = 32 << 10
	// maxPages, maxListed and maxListedValues bound a list of tools: its pages, and their bytes and
	// values.
	maxPages        = 1000
	maxListed       = 2 << 20
	maxListedValues = 100_000
	// maxReplies is how many questions of a server may wait to be answered, because it does not read.
	maxReplies = 100
	// maxErrors bounds what a server may write to its standard error in each errorsPeriod, in bytes.
	maxErrors    = 256 << 10
	errorsPeriod = time.Minute
)

// unfitError means that a server has answered, and that its answer cannot be kept as it was sent.
type unfitError struct{ why error }

func (e unfitError) Error() string {
	return fmt.Sprintf("its answer cannot be kept as the server has sent it: %v", e.why)
}

// checkAnswer refuses an answer that is not kept as it was sent.
func checkAnswer(a Answer) error {
	raw := a.Result
	if a.Error != nil {
		raw = a.Error.Data
	}
	if _, err := exactjson.Check(raw); err != nil {
		return unfitError{err}
	}
	return nil
}

// answerOf is the answer in a response.
func answerOf(m *jsonrpc.Response) Answer {
	a := Answer{Result: m.Result}
	if m.Error != nil && !errors.As(m.Error, &a.Error) {
		a.Error = &jsonrpc.Error{Message: m.Error.Error()}
	}
	return a
}

// listing is a list that comes in pages.
type listing struct {
	pages, bytes, values int
	cursors              map[string]bool
}

// take counts a page, and refuses one that would never be the last, or too much.
func (l *listing) take(page json.RawMessage, next string) error {
	values, err := exactjson.Check(page)
	if err != nil {
		return err
	}
	l.pages, l.bytes, l.values = l.pages+1, l.bytes+len(page), l.values+values
	switch {
	case l.bytes > maxListed:
		return fmt.Errorf("the list is longer than %s", activities.CountOf(maxListed, "byte"))
	case l.values > maxListedValues:
		return fmt.Errorf("the list has more values than %d", maxListedValues)
	case next == "":
		return nil
	case l.cursors[next]:
		return fmt.Errorf("after page %d is an earlier one, so that the list has no end", l.pages)
	case l.pages == maxPages:
		return fmt.Errorf("the list has more pages than %d", maxPages)
	}
	if l.cursors == nil {
		l.cursors = map[string]bool{}
	}
	l.cursors[next] = true
	return nil
}

// errorOutput passes on what a server writes to its standard error, as far as that is bounded.
type errorOutput struct {
	to  io.Writer
	now func() time.Time

	since   time.Time
	written int
	dropped int
}

// Write never fails: a server is not held up by what nobody reads.
func (e *errorOutput) Write(raw []byte) (int, error) {
	if now := e.now(); now.Sub(e.since) >= errorsPeriod {
		e.tellDropped()
		e.since, e.written = now, 0
	}
	fit := min(len(raw), maxErrors-e.written)
	e.written += fit
	e.dropped += len(raw) - fit
	_, _ = e.to.Write(bytes.Clone(raw[:fit]))
	return len(raw), nil
}

// tellDropped says how much was left out.
func (e *errorOutput) tellDropped() {
	if e.dropped > 0 {
		fmt.Fprintf(e.to, "\n(%s that an MCP server wrote to its standard error left out: it may write %d a minute)\n",
			activities.CountOf(e.dropped, "byte"), maxErrors)
	}
	e.dropped = 0
}
