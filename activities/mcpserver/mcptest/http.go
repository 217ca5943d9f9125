package mcptest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Token is what each request to Handler must bear.
const Token = "sesame-4711-open"

// Handler serves the server of a folder over streamable HTTP, to who bears the token; asJSON has it
// answer without a stream. It knows the faults that a server can have that is not started here:
// Lose breaks the connection off, Hang holds the answer back, Stall waits for the client to leave.
func Handler(dir string, asJSON bool) http.Handler {
	notes := newServer(dir)
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return notes },
		&sdk.StreamableHTTPOptions{JSONResponse: asJSON})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+Token {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		fault := faultIn(dir)
		if !changes(body) {
			fault = ""
		}
		switch fault {
		case Lose:
			inner.ServeHTTP(httptest.NewRecorder(), r)
		case Hang:
			inner.ServeHTTP(httptest.NewRecorder(), r)
			<-r.Context().Done()
		case Stall:
			if os.WriteFile(filepath.Join(dir, stalled), nil, 0o600) == nil {
				<-r.Context().Done()
			}
		default:
			inner.ServeHTTP(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	})
}

// changes reports whether a message calls a tool that changes something.
func changes(body []byte) bool {
	var m struct {
		Method string
		Params struct{ Name string }
	}
	_ = json.Unmarshal(body, &m) // the server says what is wrong with it
	switch m.Params.Name {
	case "put_note", "delete_note", "create_note", "create_blind", "send_mail":
		return m.Method == "tools/call"
	}
	return false
}
