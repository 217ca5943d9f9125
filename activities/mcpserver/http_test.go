package mcpserver_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
)

// newRemoteStore is a store whose server is reached by URL. What is passed changes how.
func newRemoteStore(t *testing.T, handler func(dir string) http.Handler, change func(*mcpserver.Server)) *store {
	t.Helper()
	return newStoreWith(t, func(c *mcpserver.Config) {
		served := httptest.NewServer(handler(strings.TrimSuffix(c.State, "state") + "store"))
		t.Cleanup(func() { served.CloseClientConnections(); served.Close() })
		notes := mcpserver.Server{URL: served.URL + "/mcp", Token: mcptest.Token,
			Declarations: c.Servers["notes"].Declarations}
		notes.Declarations.Local = false
		change(&notes)
		c.Servers["notes"] = notes
	})
}

func asEvents(dir string) http.Handler { return mcptest.Handler(dir, false) }

func asJSON(dir string) http.Handler { return mcptest.Handler(dir, true) }

func unchanged(*mcpserver.Server) {}

func TestAServerThatIsReachedByURL(t *testing.T) {
	for name, handler := range map[string]func(string) http.Handler{"events": asEvents, "JSON": asJSON} {
		t.Run(name, func(t *testing.T) {
			s := newRemoteStore(t, handler, unchanged)
			before := s.manifest()
			read, err := s.step("mcp.read", "get_note", params{"id": "there"}).apply()
			require.NoError(t, err)
			require.Equal(t, "old", read.Outputs["data"].(map[string]any)["body"])
			put := s.step("mcp.call", "put_note", params{"id": "there", "body": "1 < 2 & zwölf"})
			_, err = put.apply()
			require.NoError(t, err)
			create := s.step("mcp.call", "create_note", params{"title": "plan", "body": "one"})
			_, err = create.apply()
			require.NoError(t, err)
			require.NotEqual(t, before, s.manifest())
			require.Equal(t, activities.Restored, create.undo().Outcome)
			require.Equal(t, activities.Restored, put.undo().Outcome)
			require.Equal(t, before, s.manifest())
			_, err = s.step("mcp.call", "delete_note", params{"id": "nowhere"}).apply()
			require.Error(t, err, "an error of the server is one")
		})
	}
}

// What was sent may still arrive, so a lost answer is told by the look, and never made good by
// another call.
func TestALostAnswerOfAServerThatIsReachedByURL(t *testing.T) {
	s := newRemoteStore(t, asEvents, unchanged)
	before := s.manifest()
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	s.fault(mcptest.Lose)
	_, err := put.apply()
	require.ErrorContains(t, err, "no answer")
	s.fault("")
	done, err := put.apply()
	require.NoError(t, err)
	require.Contains(t, done.Notes[0], "get_note shows that the call has happened")
	require.Equal(t, activities.Restored, put.undo().Outcome)
	require.Equal(t, before, s.manifest())

	// It did not act, as far as one can see; but it may yet.
	late := s.step("mcp.call", "put_note", params{"id": "there", "body": "late"})
	s.fault(mcptest.Stall)
	late.leaveWhen(func() bool { return mcptest.HasStalled(notesIn(s.dir)) })
	s.fault("")
	_, err = late.apply()
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	require.Equal(t, activities.Unknown, late.undo().Outcome)
	require.Equal(t, before, s.manifest())
}

// The fence is the process that speaks to the server.
func TestAnUndoEndsWhatSpeaksToAServer(t *testing.T) {
	s := newRemoteStore(t, asEvents, unchanged)
	before := s.manifest()
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	s.fault(mcptest.Hang)
	put.leaveWhen(func() bool { return s.manifest() != before })
	speaks := mcpserver.ProcessOf(s.world, "notes")
	require.True(t, speaks.IsAlive())
	s.fault("")
	require.Equal(t, activities.Restored, put.undo().Outcome, "the look shows that it has happened")
	require.False(t, speaks.IsAlive())
}

func TestAServerThatRefusesSaysWhy(t *testing.T) {
	s := newRemoteStore(t, asEvents, func(n *mcpserver.Server) { n.Token = "another-token-than-this" })
	_, err := s.step("mcp.read", "get_note", params{"id": "there"}).apply()
	require.ErrorContains(t, err, "server notes: initialize: ")
	require.ErrorContains(t, err, "401 Unauthorized")
	require.NotContains(t, err.Error(), "another-token")

	away := newRemoteStore(t, asEvents, func(n *mcpserver.Server) { n.URL = "http://127.0.0.1:1/mcp" })
	_, err = away.step("mcp.read", "get_note", params{"id": "there"}).apply()
	require.ErrorContains(t, err, "connection refused")

	elsewhere := newRemoteStore(t,
		func(string) http.Handler { return http.RedirectHandler("/other", http.StatusTemporaryRedirect) }, unchanged)
	_, err = elsewhere.step("mcp.read", "get_note", params{"id": "there"}).apply()
	require.ErrorContains(t, err, "307 Temporary Redirect", "nobody has agreed to another address")
}

// A server forgets its sessions when it starts again; the call that finds that out has changed
// nothing, and the next one begins another.
func TestASessionThatAServerHasForgottenIsBegunAgain(t *testing.T) {
	var dir string
	var inner http.Handler
	s := newRemoteStore(t, func(d string) http.Handler {
		dir, inner = d, asEvents(d)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r) })
	}, unchanged)
	read := s.step("mcp.read", "get_note", params{"id": "there"})
	_, err := read.apply()
	require.NoError(t, err)
	inner = asEvents(dir)
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err = put.apply()
	require.Error(t, err)
	require.Eventually(t, func() bool { _, err := read.apply(); return err == nil }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, activities.Nothing, put.undo().Outcome)
}

func TestAnotherServerOfTheSameNameIsTheWrongPlace(t *testing.T) {
	var first mcpserver.Server
	s := newRemoteStore(t, asEvents, func(n *mcpserver.Server) { first = *n })
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err := put.apply()
	require.NoError(t, err)
	left := s.manifest()

	moved := first
	moved.URL = strings.TrimSuffix(first.URL, "/mcp") + "/other"
	w, err := mcpserver.New(mcpserver.Config{State: s.dir + "/state",
		Servers: map[string]mcpserver.Server{"notes": moved}})
	require.NoError(t, err)
	other := &store{T: t, dir: s.dir, world: w}
	again := other.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err = again.action.Undo(t.Context(), again.entry, activities.Decision{})
	require.Equal(t, activities.WrongPlace, activities.TypeOf(err), "%v", err)
	require.ErrorContains(t, err, first.URL)
	require.Equal(t, left, s.manifest())
	require.Equal(t, activities.Restored, put.undo().Outcome)
}

func TestAddressesThatAreRefused(t *testing.T) {
	for want, s := range map[string]mcpserver.Server{
		"command: give the command line that starts the server, or url": {},
		"not both":                               {Command: "true", URL: "https://h/mcp"},
		"token: it is for url":                   {Command: "true", Token: "t"},
		"as in https://host/path":                {URL: "h/mcp"},
		"no user, password":                      {URL: "https://u:p@h/mcp"},
		"query":                                  {URL: "https://h/mcp?key=1"},
		"in the clear":                           {URL: "http://h/mcp", Token: "t"},
		"local: a server that is reached by url": {URL: "https://h/mcp", Declarations: mcpserver.Declarations{Local: true}},
	} {
		require.ErrorContains(t, s.Validate(), want)
	}
	for _, s := range []mcpserver.Server{
		{URL: "http://127.0.0.1:1/mcp", Token: "t"}, {URL: "http://localhost:1", Token: "t"}, {URL: "http://h/mcp"},
		{URL: "https://h/mcp", Token: "t"},
	} {
		require.NoError(t, s.Validate())
	}
}
