package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/rest"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// document is what a served API says of itself.
type document struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas json.RawMessage `json:"schemas"`
	} `json:"components"`
}

func readDocument(t *testing.T, url string) (d document) {
	t.Helper()
	response, err := http.Get(url + "/openapi.json")
	require.NoError(t, err)
	defer response.Body.Close()
	require.NoError(t, json.NewDecoder(response.Body).Decode(&d))
	return d
}

// operations counts those below a path.
func (d document) operations(below string) (n int) {
	for path, all := range d.Paths {
		if strings.HasPrefix(path, below) {
			n += len(all)
		}
	}
	return n
}

// check compares an answer with what the document says of it.
func (d document) check(t *testing.T, method, path string, response *http.Response, raw []byte) {
	t.Helper()
	said, is := d.Paths[path][strings.ToLower(method)].Responses[strconv.Itoa(response.StatusCode)]
	require.True(t, is, "the document says nothing of %s %s with status %d", method, path, response.StatusCode)
	if response.StatusCode == http.StatusNoContent {
		require.Empty(t, raw)
		return
	}
	content, is := said.Content[response.Header.Get("Content-Type")]
	require.True(t, is, "of %s %s it does not say %s", method, path, response.Header.Get("Content-Type"))
	text := fmt.Sprintf(`{"allOf": [%s], "$defs": %s}`, content.Schema, d.Components.Schemas)
	text = strings.ReplaceAll(text, "#/components/schemas/", "#/$defs/")
	var schema jsonschema.Schema
	require.NoError(t, json.Unmarshal([]byte(text), &schema))
	resolved, err := schema.Resolve(nil)
	require.NoError(t, err)
	var body any
	require.NoError(t, json.NewDecoder(bytes.NewReader(raw)).Decode(&body))
	require.NoError(t, resolved.Validate(body), "%s", raw)
}

// withoutUnknown drops what is said of the environments of other tests, whose workers may have ended.
func withoutUnknown(t *testing.T, object string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(object), &fields))
	delete(fields, "unknown")
	rest, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(rest)
}

// TestTasksAreServedOverHTTP calls each operation on tasks, and has each answer compared with the
// document that the server itself serves.
func TestTasksAreServedOverHTTP(t *testing.T) {
	d := newDesk(t)
	const vi, ap, op = "token-of-vi-0123456789", "token-of-ap-0123456789", "token-of-op-0123456789"
	s := d.servePage("vi "+vi+" viewer", "ap "+ap+" approver", "op "+op)
	described := readDocument(t, s.url)
	require.Equal(t, 11, described.operations("/api/tasks"))
	call := func(token, method, path, body string, want int, out any) string {
		t.Helper()
		at, query, _ := strings.Cut(path, "?")
		request, err := http.NewRequestWithContext(t.Context(), method, s.url+at+"?"+query, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, want, response.StatusCode, "%s", raw)
		named := strings.Split(at, "/")
		for i, name := range map[int]string{3: "{task}", 5: "{step}"} {
			if len(named) > i {
				named[i] = name
			}
		}
		described.check(t, method, strings.Join(named, "/"), response, raw)
		if out != nil {
			require.NoError(t, json.Unmarshal(raw, out))
		}
		return string(raw)
	}
	id, digest := d.waitsAtGate()
	at := "/api/tasks/" + id
	about := fmt.Sprintf(`{"digest": %q, "why": "seen"}`, digest)
	call("token-of-nobody-0123456789", http.MethodGet, "/api/tasks", "", http.StatusUnauthorized, nil)
	var waiting rest.TaskList
	require.Eventually(t, func() bool {
		call(vi, http.MethodGet, "/api/tasks?needsPerson=true&agent=bot&limit=1000", "", http.StatusOK, &waiting)
		return strings.Contains(fmt.Sprint(waiting.Tasks), id)
	}, waitFor, tick)
	call(vi, http.MethodGet, "/api/tasks?limit=0", "", http.StatusUnprocessableEntity, nil)
	call(vi, http.MethodPost, at+"/steps/two/approve", about, http.StatusForbidden, nil)
	call(ap, http.MethodPost, at+"/cancel", "", http.StatusForbidden, nil)
	call(ap, http.MethodPost, at+"/steps/two/approve", `{"digest": "sha256:another"}`, http.StatusConflict, nil)
	call(ap, http.MethodPost, at+"/steps/two/approve", `{"who": "ann"}`, http.StatusUnprocessableEntity, nil)
	call(ap, http.MethodPost, at+"/steps/two/resolve", `{"digest": "x", "do": "retry"}`, http.StatusConflict, nil)
	call(ap, http.MethodGet, "/api/tasks/nobody", "", http.StatusNotFound, nil)
	call(op, http.MethodPost, "/api/tasks/nobody/rollback", "{}", http.StatusNotFound, nil)
	var answer protocol.DecisionAnswer
	call(ap, http.MethodPost, at+"/steps/two/approve", about, http.StatusOK, &answer)
	require.Nil(t, answer.Cause)
	require.Contains(t, d.until(id, committed).Report.Steps[1].Notes[0], "approved by ap: seen")
	call(ap, http.MethodPost, at+"/steps/two/reject", about, http.StatusConflict, nil)
	call(op, http.MethodPost, at+"/cancel", "", http.StatusConflict, nil)
	call(op, http.MethodPost, at+"/recover", "", http.StatusConflict, nil)
	call(op, http.MethodPost, at+"/redo", "", http.StatusConflict, nil)

	shown := call(vi, http.MethodGet, at, "", http.StatusOK, nil)
	require.JSONEq(t, withoutUnknown(t, d.ok("show", id, "-o", "json")), withoutUnknown(t, shown))
	var step tasks.Step
	call(vi, http.MethodGet, at+"/steps/two", "", http.StatusOK, &step)
	require.Equal(t, "", step.Outputs["before"])
	require.Contains(t, call(vi, http.MethodGet, at+"/trace", "", http.StatusOK, nil), "seen")

	var rollback, redo rest.Begun
	call(op, http.MethodPost, at+"/rollback", `{"why": "enough"}`, http.StatusAccepted, &rollback)
	require.Equal(t, id, rollback.Of)
	require.NoError(t, d.client.GetWorkflow(t.Context(), rollback.ID, "").Get(t.Context(), nil))
	require.Empty(t, d.world.get("b"))
	call(op, http.MethodPost, "/api/tasks/"+rollback.ID+"/redo", "", http.StatusAccepted, &redo)
	about = fmt.Sprintf(`{"digest": %q}`, d.until(redo.ID, atGate).Gates[0].Digest) // it asks again
	call(ap, http.MethodPost, "/api/tasks/"+redo.ID+"/steps/two/approve", about, http.StatusOK, nil)
	require.NoError(t, d.client.GetWorkflow(t.Context(), redo.ID, "").Get(t.Context(), nil))
	require.Equal(t, "y", d.world.get("b"))
}
