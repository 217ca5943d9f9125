package command

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/apps"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// api is a served API, with what its own document says of it.
type api struct {
	*site
	url, token string
	document   document
}

const (
	annsToken = "token-of-ann-0123456789"
	bobsToken = "token-of-bob-0123456789"
)

func (s *site) serve() *api {
	s.write("tokens", "# whose\nann "+annsToken+"\n\nbob "+bobsToken+"\n")
	r := s.begin("serve", "--listen", "127.0.0.1:0", "--tokens", filepath.Join(s.root, "tokens"))
	s.prints(r, "/openapi.json")
	a := &api{site: s, token: annsToken}
	a.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(r.out.String())
	a.document = readDocument(s.T, a.url)
	s.Cleanup(func() {
		r.stop()
		require.Equal(s, statusOK, s.ended(r).status)
	})
	return a
}

// call sends a request, and compares the answer with the document.
func (a *api) call(method, path, body string, want int, out any, headers ...string) string {
	a.Helper()
	in := "/api/apps/" + a.name + "/checkpoints" + path
	request, err := http.NewRequestWithContext(a.Context(), method, a.url+in, strings.NewReader(body))
	require.NoError(a, err)
	if a.token != "" {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(a, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(a, err)
	require.Equal(a, want, response.StatusCode, "%s", raw)
	named := "/api/apps/{app_id}/checkpoints" + regexp.MustCompile(`/cp-[a-z0-9-]+`).ReplaceAllString(path, "/{cp_id}")
	a.document.check(a.T, method, named, response, raw)
	if out != nil {
		require.NoError(a, json.Unmarshal(raw, out))
	}
	return string(raw)
}

// TestCheckpointsAreServedOverHTTP calls each operation, and has each answer compared with the
// document that the server itself serves.
func TestCheckpointsAreServedOverHTTP(t *testing.T) {
	s := newSite(t)
	s.apply()
	a := s.serve()
	require.Equal(t, "3.1.0", a.document.OpenAPI)
	require.Equal(t, 9, a.document.operations("/api/apps/"))

	a.token = ""
	require.Contains(t, a.call(http.MethodGet, "", "", http.StatusUnauthorized, nil), "give a bearer token")
	a.token = bobsToken
	require.Contains(t, a.call(http.MethodGet, "", "", http.StatusNotFound, nil), "there is no environment")
	a.call(http.MethodPost, "", "{}", http.StatusNotFound, nil)
	a.token = annsToken
	var all apps.Checkpoints
	a.call(http.MethodGet, "", "", http.StatusOK, &all)
	require.Empty(t, all.Checkpoints)
	require.Equal(t, 10, all.Usage.Last)

	before := s.is()
	var first, again apps.Checkpoint
	body := `{"notes": "before the upgrade", "pinned": true}`
	text := a.call(http.MethodPost, "", body, http.StatusCreated, &first, "Idempotency-Key", "one")
	require.Contains(t, text, `"vm_snapshot_id":null`)
	require.Equal(t, environment.Manual, first.Trigger)
	require.Equal(t, "before the upgrade", first.Notes)
	a.call(http.MethodPost, "", body, http.StatusCreated, &again, "Idempotency-Key", "one")
	require.Equal(t, first, again, "a request that is repeated is carried out once")
	a.call(http.MethodGet, "/"+first.ID, "", http.StatusOK, &again)
	require.Equal(t, first, again)
	require.Contains(t, a.call(http.MethodDelete, "/"+first.ID, "", http.StatusConflict, nil), "unpin it first")

	s.sh("echo bad >code/page; echo more >>uploads/one")
	broken := s.is()
	var back apps.RolledBack
	a.call(http.MethodPost, "/"+first.ID+"/rollback", "", http.StatusOK, &back)
	require.Equal(t, before, s.is())
	require.Len(t, back.Stages, 6)
	a.call(http.MethodPost, "/"+back.Safety.ID+"/rollback", "", http.StatusOK, nil)
	require.Equal(t, broken, s.is())

	a.call(http.MethodPost, "/"+first.ID+"/unpin", "", http.StatusOK, &again)
	require.False(t, again.Pinned)
	a.call(http.MethodPost, "/"+first.ID+"/pin", "", http.StatusOK, &again)
	require.True(t, again.Pinned)
	a.call(http.MethodPost, "/"+first.ID+"/unpin", "", http.StatusOK, nil)
	a.call(http.MethodDelete, "/"+first.ID, "", http.StatusNoContent, nil)
	require.Contains(t, a.call(http.MethodGet, "/"+first.ID, "", http.StatusNotFound, nil), "has no checkpoint "+first.ID)
	require.Contains(t, a.call(http.MethodPost, "/"+first.ID+"/rollback", "", http.StatusNotFound, nil), "has no checkpoint")
	require.Contains(t, a.call(http.MethodPost, "/prune", "", http.StatusOK, nil), `{"deleted":[],"kept":2}`)
	require.Contains(t, a.call(http.MethodPost, "", `{"notes": 7}`, http.StatusUnprocessableEntity, nil), "expected string")
	require.Contains(t, a.call(http.MethodPost, "", `{"pin": true}`, http.StatusUnprocessableEntity, nil), "unexpected property")

	a.call(http.MethodPost, "", "", http.StatusCreated, &again)
	require.Equal(t, environment.Manual, again.Trigger)
	s.sh("mv code away")
	require.Contains(t, a.call(http.MethodPost, "", "{}", http.StatusInternalServerError, nil), s.root+"/code")
	s.sh("mv away code")
}

// TestStagesAreStreamedWhileTheyRun holds a rollback where the unit is to stop: by then it has told
// of the stage before.
func TestStagesAreStreamedWhileTheyRun(t *testing.T) {
	s := newSite(t)
	s.apply()
	a := s.serve()
	var first apps.Checkpoint
	a.call(http.MethodPost, "", "", http.StatusCreated, &first)
	before := s.is()
	s.sh("echo bad >code/page; touch hold")
	next := a.stages(first.ID, http.StatusOK)
	told := []string{}
	for event, data := next(); event != ""; event, data = next() {
		var stage environment.Passed
		if event == "stage" {
			require.NoError(t, json.Unmarshal(data, &stage))
			require.Equal(t, "ok", stage.Status)
			require.NotZero(t, stage.At)
			require.NotEmpty(t, stage.Notes)
		}
		told = append(told, event+" "+string(stage.Stage))
		if stage.Stage == environment.Verify {
			require.FileExists(t, filepath.Join(s.root, "hold"))
			s.sh("rm hold")
		}
		if event == "done" {
			var back apps.RolledBack
			require.NoError(t, json.Unmarshal(data, &back))
			require.Equal(t, first.ID, back.To.ID)
			require.Len(t, back.Stages, 6)
		}
	}
	require.Equal(t, []string{"stage verify", "stage stop-unit", "stage safety-checkpoint", "stage restore-files",
		"stage start-unit", "stage health-check", "done "}, told)
	require.Equal(t, before, s.is())

	event, data := a.stages("cp-none", http.StatusOK)()
	require.Equal(t, "problem", event)
	require.Contains(t, string(data), `"status":404`)
	a.token = bobsToken
	a.stages(first.ID, http.StatusNotFound)
}

// stages rolls back; next is the next event of the answer, without a name where there is none.
func (a *api) stages(to string, want int) (next func() (event string, data []byte)) {
	a.Helper()
	request, err := http.NewRequestWithContext(a.Context(), http.MethodPost,
		a.url+"/api/apps/"+a.name+"/checkpoints/"+to+"/rollback/stages", nil)
	require.NoError(a, err)
	request.Header.Set("Authorization", "Bearer "+a.token)
	response, err := http.DefaultClient.Do(request)
	require.NoError(a, err)
	a.Cleanup(func() { response.Body.Close() })
	require.Equal(a, want, response.StatusCode)
	if want == http.StatusOK {
		require.Equal(a, "text/event-stream", response.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(response.Body)
	return func() (event string, data []byte) {
		for lines.Scan() && lines.Text() != "" {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				event = value
			case "data":
				data = []byte(value)
			}
		}
		return event, data
	}
}

func TestAnAddressThatOthersReachNeedsTokens(t *testing.T) {
	require.ErrorContains(t, checkAddress("10.0.0.1:1", serveAddress, false, "--tokens"), "others can reach it; give --tokens")
	require.NoError(t, checkAddress("10.0.0.1:1", serveAddress, true, "--tokens"))
}
