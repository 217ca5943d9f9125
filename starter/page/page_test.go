package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestWhatIsAlikeStandsTogether(t *testing.T) {
	of := func(agent, action, file string, risk activities.Risk) item {
		return item{Kind: gate, Agent: agent, Action: action, Risk: risk, Keys: []string{"file:" + file}, Step: file}
	}
	all := batches([]item{
		of("a", "file.write", "/srv/site/x", activities.Low), of("a", "file.write", "/srv/site/deep/y", activities.Medium),
		of("b", "file.write", "/srv/site/z", activities.Low), of("a", "file.write", "/srv/site/risky", activities.High),
		of("a", "file.delete", "/srv/other", activities.Low),
		{Kind: undo, Agent: "a", Action: "file.write"}, {Kind: undo, Agent: "a", Action: "file.write"},
	})
	var shown []string
	for _, b := range all {
		shown = append(shown, fmt.Sprintf("%d %s %s %s", len(b.Items), b.Agent, b.Action, b.Below))
	}
	require.Equal(t, []string{"2 a file.write /srv/site", "1 b file.write /srv/site", "1 a file.write /srv/site",
		"1 a file.delete /srv", "1 a file.write ", "1 a file.write "}, shown)

	var many []item
	for n := range inBatch + 1 {
		many = append(many, of("a", "file.write", fmt.Sprint("/srv/", n), activities.Low))
	}
	require.Len(t, batches(many), 2)
	require.Empty(t, commonFolder([]item{{Keys: []string{"postgres:shop"}}}))
	require.Equal(t, "/", commonFolder([]item{{Keys: []string{"file:/a/b", "file:/c"}}}))
}

func TestAListIsShownInPages(t *testing.T) {
	of := func(many int) batch { return batch{Items: make([]item, many)} }
	all := []batch{of(onPage - 1), of(1), of(1), of(onPage), of(inBatch), of(inBatch)}
	for page, want := range map[string][3]any{
		"":   {2, "", "/?page=2&q=x+y"},
		"2":  {1, "/?page=1&q=x+y", "/?page=3&q=x+y"},
		"3":  {1, "/?page=2&q=x+y", "/?page=4&q=x+y"},
		"4":  {2, "/?page=3&q=x+y", ""},
		"99": {2, "/?page=3&q=x+y", ""},
		"-1": {2, "", "/?page=2&q=x+y"},
	} {
		request := httptest.NewRequest(http.MethodGet, "/?q=x+y&page="+page, nil)
		part, turning := turn(all, request)
		require.Equal(t, want, [3]any{len(part), turning.Before, turning.After}, page)
	}
	part, turning := turn(nil, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Empty(t, part)
	require.Zero(t, turning)
}

// TestWhatWasDecidedWaitsNoMore has a task asked before a decision, and after it.
func TestWhatWasDecidedWaitsNoMore(t *testing.T) {
	b, listed := newInbox(&tasks.Client{}), []tasks.Listed{{ID: "t", Gate: "one"}}
	answered := func(at time.Time) {
		b.tasks["t"] = waiting{listed: listed[0], read: at, items: []item{{Digest: "one"}, {Digest: "two"}}}
	}
	answered(time.Now())
	require.Equal(t, 2, b.count())
	require.Empty(t, newsOf(b, listed))
	asked := time.Now()
	b.settle("one")
	answered(asked) // what it says is from before the decision
	require.Equal(t, 1, b.count())
	require.Equal(t, listed, newsOf(b, listed), "it is asked again")
	answered(time.Now())
	require.Equal(t, 2, b.count(), "a task that was asked afterwards is right")
	require.Empty(t, newsOf(b, listed))
}

func TestWhatWasReadLongAgoIsReadInTurn(t *testing.T) {
	b := newInbox(&tasks.Client{})
	var listed, want []tasks.Listed
	for n := range 2 * maxAgain {
		task := tasks.Listed{ID: fmt.Sprint(n)}
		listed = append(listed, task)
		b.tasks[task.ID] = waiting{listed: task, read: time.Now().Add(-2*readAgain - time.Duration(n)*time.Second)}
		want = append([]tasks.Listed{task}, want[:min(n, maxAgain-1)]...)
	}
	b.forget("3")
	added := tasks.Listed{ID: "new"}
	news, again := b.list(append(listed, added), false, nil)
	require.Equal(t, []tasks.Listed{listed[3], added}, news)
	require.Equal(t, want, again)
}

// silentServer lists tasks that no worker answers for.
type silentServer struct {
	client.Client

	listed []*workflowpb.WorkflowExecutionInfo
}

func (s *silentServer) ListWorkflow(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (
	*workflowservice.ListWorkflowExecutionsResponse, error) {
	return &workflowservice.ListWorkflowExecutionsResponse{Executions: s.listed}, nil
}

func (s *silentServer) QueryWorkflow(ctx context.Context, _, _, _ string, _ ...any) (converter.EncodedValue, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *silentServer) add(id string) {
	task := &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{WorkflowId: id}}
	s.listed = append([]*workflowpb.WorkflowExecutionInfo{task}, s.listed...) // the server lists what is new first
}

// TestManySilentTasksDoNotHideWhatIsNew has a task come while more of them are asked than answer soon.
func TestManySilentTasksDoNotHideWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		server := &silentServer{}
		for n := range many {
			server.add(fmt.Sprint(n))
		}
		b, began := newInbox(&tasks.Client{Client: server}), time.Now()
		b.refresh(t.Context())
		_, problem := b.all(t.Context())
		require.Equal(t, "The list is being read.", problem)
		server.add("new")
		b.refresh(t.Context())
		require.Contains(t, b.tasks, "new")
		require.LessOrEqual(t, time.Since(began), 2*(lookLimit+2*askLimit)+patience)
		for range many {
			b.refresh(t.Context())
		}
		items, problem := b.all(t.Context())
		require.Len(t, items, many+1)
		require.Empty(t, problem)
	})
}

func newsOf(b *inbox, listed []tasks.Listed) []tasks.Listed {
	news, _ := b.list(listed, false, nil)
	return news
}

func TestABatchIsKnownAgainWhenItsFirstWasDecided(t *testing.T) {
	var items []item
	for n := range 2*inBatch + 1 {
		items = append(items, item{Kind: gate, Agent: "a", Action: "file.write", Digest: activities.Digest(fmt.Sprint(n))})
	}
	ids := func(all []batch) (ids []string) {
		for _, b := range all {
			ids = append(ids, b.ID())
		}
		return ids
	}
	before := ids(batches(items))
	require.Len(t, before, 3)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(before))), 3)
	require.Equal(t, before[:2], ids(batches(items[1:])))
}

// TestHostileTextsAreShownAsTheyAre has what agents and worlds may say in each place of a page.
func TestHostileTextsAreShownAsTheyAre(t *testing.T) {
	const hostile = "</p><script>alert(1)</script>\u202e\" onload=\"x()"
	i := item{Task: "t", Kind: gate, Agent: hostile, Action: hostile, Step: hostile, Summary: hostile, Why: hostile,
		Waits: hostile, Digest: hostile, Risk: activities.Low, Until: time.Now().Add(time.Hour)}
	for _, items := range [][]item{{i}, {i, i}} {
		v := view{Person: bearer.Person{Name: hostile, Role: bearer.Operator}, Body: inboxPage{Batches: batches(items),
			Filter: hostile}}
		require.NoError(t, v.write("inbox"))
		page := string(v.main)
		require.NotContains(t, page, "<script>alert")
		require.NotContains(t, page, `" onload="`)
		require.Contains(t, page, `&lt;script&gt;alert(1)&lt;/script&gt;\u202e`)
		shown := v.shown()
		require.NoError(t, v.write("inbox"))
		require.Equal(t, shown, v.shown(), "the same page has the same name, however late it is")
	}
}

func TestASessionEnds(t *testing.T) {
	s, now := newSessions(), time.Now()
	one := bearer.Person{Name: "one", Role: bearer.Viewer}
	id := s.open(one, now)
	who, found := s.find(id, now.Add(sessionLimit-time.Second))
	require.True(t, found)
	require.Equal(t, one, who)
	_, found = s.find(id, now.Add(sessionLimit))
	require.False(t, found)
	other := s.open(bearer.Person{Name: "two"}, now)
	s.close(other)
	_, found = s.find(other, now)
	require.False(t, found)
	s.open(bearer.Person{Name: "three"}, now.Add(sessionLimit+time.Second))
	require.Len(t, s.all, 1, "one that has ended takes no room")
}

func TestASignInLeadsToAPageOfThisServer(t *testing.T) {
	for to, want := range map[string]string{
		"/tasks/a?page=2": "/tasks/a?page=2", "": "/", "tasks": "/", "//evil.example.com": "/", `/\evil.example.com`: "/",
		"https://evil.example.com": "/", "javascript:alert(1)": "/", "/\t/evil.example.com": "/",
		"/" + strings.Repeat("a", maxPath): "/",
	} {
		require.Equal(t, want, ownPath(to), to)
	}
}

func TestNobodyGuessesTokens(t *testing.T) {
	s := &Server{Tokens: bearer.Tokens{"token-of-ann-0123456789": {Name: "ann", Role: bearer.Viewer}}}
	s.inbox, s.sessions = newInbox(&tasks.Client{}), newSessions()
	statuses := map[int]int{}
	for range 30 {
		request := httptest.NewRequest(http.MethodPost, "/signin", strings.NewReader("token=guess"))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := httptest.NewRecorder()
		s.signIn(answer, request)
		statuses[answer.Code]++
	}
	require.GreaterOrEqual(t, statuses[http.StatusTooManyRequests], 15)
	require.Equal(t, 30, statuses[http.StatusTooManyRequests]+statuses[http.StatusUnauthorized])
}

func TestWhatMustBeSignedIsSignedInATerminalOrByAPasskey(t *testing.T) {
	now := protocol.StepNow{Step: protocol.StepView{ID: "two"}, Gate: &protocol.GateView{Step: "two", Digest: "sha256:x"}}
	var with stepPage
	show := func() string {
		b := with
		b.Run = tasks.Run{ID: "ship"}
		b.addWaiting(tasks.Server{}, now)
		b.addSigning(tasks.Server{}, now)
		v := view{Person: bearer.Person{Name: "ann", Role: bearer.Operator}, Body: b}
		require.NoError(t, v.write("step"))
		return string(v.main)
	}
	require.Contains(t, show(), `value="approve"`)
	now.Gate.Signed = true
	require.NotContains(t, show(), "<form")
	require.Contains(t, show(), "starter approve ship two\nstarter reject ship two --why WHY")
	require.NotContains(t, show(), "/passkey")
	with = stepPage{Enrolls: true, Passkeys: []string{"ann", "<bob>"}}
	require.Contains(t, show(), `data-passkey="sign"`)
	require.Contains(t, show(), `<select name="as"><option>ann</option><option>&lt;bob&gt;</option></select>`)
	require.NotContains(t, show(), "a claim")
	with.Passkeys = nil
	require.Contains(t, show(), `<a href="/passkey">make one</a>`)
	require.NotContains(t, show(), "<form")
	now.Gate, now.Undo = nil, &compensations.StepReport{Step: "two", State: string(compensations.Parked), Signed: true}
	require.NotContains(t, show(), "<form")
	require.Contains(t, show(), "starter resolve ship two --do accept")
}

func TestWhatIsSignedIsWhatIsShown(t *testing.T) {
	change := activities.Change{Undo: "puts it back"}
	now := protocol.StepNow{Gate: &protocol.GateView{Step: "two", Digest: "sha256:x", Change: change, Undo: change.UndoDigest()}}
	d := decision{task: "ship", step: "two", digest: "sha256:x", do: activities.Approve, who: "ann", why: "seen",
		at: time.Unix(1, 0)}
	about, err := d.statement(now)
	require.NoError(t, err)
	require.Equal(t, now.Gate.Statement("ship", activities.Approve, protocol.Decision{Who: "ann", At: d.at, Why: "seen"}), about)

	now.Gate.Undo = "sha256:more than is shown"
	_, err = d.statement(now)
	require.ErrorContains(t, err, "how step two would be undone is not shown as a whole, so nobody can sign for it")
	d.do = activities.Reject
	_, err = d.statement(now)
	require.NoError(t, err)

	d.digest = "sha256:y"
	for _, now := range []protocol.StepNow{now, {}, {Park: &protocol.ParkView{Digest: "sha256:x"}},
		{Undo: &compensations.StepReport{Digest: "sha256:x"}}} {
		_, err = d.statement(now)
		require.ErrorContains(t, err, "something else waits there now, or nothing: load the page again")
	}
}
