package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// served is a page that a test looks at, in a browser or without.
type served struct {
	*desk
	url    string
	client *http.Client
}

// servePage serves the page; tokens are the lines of a file, none for a page without.
func (d *desk) servePage(tokens ...string) *served {
	if len(tokens) == 0 {
		return d.servePageWith()
	}
	file := filepath.Join(d.folder, "tokens")
	require.NoError(d, os.WriteFile(file, []byte(strings.Join(tokens, "\n")), 0o600))
	return d.servePageWith("--tokens", file)
}

// servePageWith serves the page with flags, which may say where.
func (d *desk) servePageWith(flags ...string) *served {
	r := d.begin(append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	d.prints(r, "/openapi.json")
	jar, err := cookiejar.New(nil)
	require.NoError(d, err)
	s := &served{desk: d, url: regexp.MustCompile(`http://[0-9.:]+`).FindString(r.out.String()),
		client: &http.Client{Jar: jar}}
	d.Cleanup(func() {
		r.stop()
		require.Equal(d, statusOK, d.ended(r).status)
	})
	return s
}

// get asks for a page.
func (s *served) get(path string, want int) string {
	s.Helper()
	return s.send(http.MethodGet, path, nil, want)
}

// post sends a form as a browser would.
func (s *served) post(path string, form url.Values, want int) string {
	s.Helper()
	return s.send(http.MethodPost, path, form, want)
}

func (s *served) send(method, path string, form url.Values, want int, headers ...string) string {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(form.Encode()))
	require.NoError(s, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.client.Do(request)
	require.NoError(s, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	require.Equal(s, want, response.StatusCode, "%s %s: %s", method, path, body)
	return string(body)
}

// waitsAtGate starts a task that waits at a gate, and returns its id and the digest of that.
func (d *desk) waitsAtGate() (id, digest string) {
	id = regexp.MustCompile(`(?m)^task (\S+)$`).FindStringSubmatch(d.ok("run", d.file(gated)))[1]
	return id, string(d.until(id, atGate).Gates[0].Digest)
}

func committed(s protocol.State) bool { return s.Phase == protocol.Closed }

// browse opens a tab of a browser.
func (s *served) browse() *tab {
	testrun.NeedProgram(s, "chromium", "install the package chromium")
	program, err := exec.LookPath("chromium")
	require.NoError(s, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.UserDataDir(filepath.Join(s.folder, "browser")))
	browser, cancel := chromedp.NewExecAllocator(s.Context(), options...)
	s.Cleanup(cancel)
	at, cancel := chromedp.NewContext(browser)
	s.Cleanup(cancel)
	at, cancel = context.WithTimeout(at, 3*time.Minute)
	s.Cleanup(cancel)
	return &tab{s, at}
}

// tab is a tab of a browser that shows the page.
type tab struct {
	*served

	at context.Context //nolint:containedctx // it is the tab
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	require.NoError(b, chromedp.Do(b.at, actions...))
}

// reads is what a person reads there.
func (b *tab) reads() string {
	b.Helper()
	text, err := chromedp.Run(b.at, chromedp.Text("main"))
	require.NoError(b, err)
	return text
}

// press presses a button as a mouse does, until it is released.
func (b *tab) press(button string) (release func()) {
	b.Helper()
	at, err := chromedp.Run(b.at, chromedp.Evaluate[[]float64](fmt.Sprintf(
		`(({x, y, width, height}) => [x + width / 2, y + height / 2])(document.querySelector(%q).getBoundingClientRect())`,
		button)))
	require.NoError(b, err)
	mouse := func(kind input.DispatchMouseEventType) {
		b.Helper()
		_, err := chromedp.Call(b.at, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at[0], Y: at[1],
			Button: input.MouseButtonLeft, ClickCount: 1})
		require.NoError(b, err)
	}
	mouse(input.DispatchMouseEventTypeMousePressed)
	return func() { b.Helper(); mouse(input.DispatchMouseEventTypeMouseReleased) }
}

// told waits until the page says what a decision has come to.
func (b *tab) told(text string) {
	b.Helper()
	b.awaitText(".told, .problem", text)
}

// says waits until the page says something.
func (b *tab) says(text string) {
	b.Helper()
	b.awaitText("main", text)
}

// ask has the page evaluate a script. What is asked while one page follows another may never be answered.
func ask[T any](b *tab, script string) (T, error) {
	limited, cancel := context.WithTimeout(b.at, 2*time.Second)
	defer cancel()
	return chromedp.Run(limited, chromedp.Evaluate[T](script))
}

// awaitText asks the browser each time: chromedp's copy of a document that is replaced while it loads
// may miss what is there.
func (b *tab) awaitText(where, text string) {
	b.Helper()
	var said string
	script := fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.innerText).join("\\n")`, where)
	if !assert.Eventually(b, func() bool {
		said, _ = ask[string](b, script)
		return strings.Contains(said, text)
	}, waitFor, tick) {
		require.Contains(b, said, text)
	}
}

func TestAPersonDecidesInABrowser(t *testing.T) {
	d := newDesk(t)
	id, _ := d.waitsAtGate()
	s := d.servePage()
	b := s.browse()
	b.do(chromedp.Navigate(s.url + "/?q=" + id))
	require.Contains(t, b.reads(), `set b from "" to "y"`)
	require.Contains(t, b.reads(), "medium risk")
	b.checkAccess()
	b.do(chromedp.Click(".card h2 a"), chromedp.WaitVisible(`button[value="approve"]`))
	for _, text := range []string{"+y", "puts the old value back", "who read it meanwhile", "somebody reads it",
		"then it counts as rejected", "your name is a claim"} {
		require.Contains(t, b.reads(), text)
	}
	b.checkAccess()
	b.do(chromedp.SendKeys("#why", "looks right"), chromedp.Click(`button[value="approve"]`),
		chromedp.WaitVisible(`//span[text()="committed"]`)) // told by the stream, without loading the page again
	require.Contains(t, b.reads(), "approved: step two goes on")
	require.Contains(t, b.reads(), "approved by "+currentUser()+": looks right")
	require.Equal(t, "y", d.world.get("b"))
	b.checkAccess()

	b.do(chromedp.Click(`button[value="rollback"]`), chromedp.WaitVisible(`//span[text()="unwound"]`))
	require.Contains(t, b.reads(), "restored")
	require.Empty(t, d.world.get("b"))
	b.do(chromedp.Navigate(s.url + "/tasks/" + id))
	require.Contains(t, b.reads(), "rolled back")
	b.do(chromedp.Navigate(s.url + "/tasks/" + id + "/trace"))
	require.Contains(t, b.reads(), "looks right")
	b.checkAccess()
}

// accessJS finds what keeps people from using a page: controls without a name, texts that do not
// stand out, a page that is wider than its window, parts that only a mouse scrolls, ids that are not
// unique.
const accessJS = `(() => {
	const faults = [];
	const seen = (e) => e.checkVisibility();
	const channel = (v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
	const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
	const paint = (text) => {
		const c = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
		c.fillStyle = text; c.fillRect(0, 0, 1, 1);
		return [...c.getImageData(0, 0, 1, 1).data];
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const b = paint(getComputedStyle(e).backgroundColor);
			if (b[3] === 255) return b;
		}
		return [255, 255, 255];
	};
	for (const e of document.querySelectorAll("body *")) {
		const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
		if (!own || !seen(e) || e.className === "skip") continue;
		const a = light(paint(getComputedStyle(e).color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) faults.push("contrast " + ratio.toFixed(1) + ": " + e.outerHTML.slice(0, 80));
	}
	for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a")) {
		const name = e.getAttribute("aria-label") || [...(e.labels || [])].map((l) => l.textContent).join("") || e.textContent;
		if (seen(e) && !name.trim()) faults.push("no name: " + e.outerHTML.slice(0, 80));
	}
	for (const e of document.querySelectorAll("main *")) {
		if (e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === "auto" && e.tabIndex < 0 &&
			!e.querySelector("a, button")) faults.push("scrolled by a mouse alone: " + e.outerHTML.slice(0, 80));
	}
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push("id twice: " + id);
	if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
	if (!document.documentElement.lang || !document.title) faults.push("no language or title");
	if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than its window: " +
		document.documentElement.scrollWidth + " of " + innerWidth);
	return faults;
})()`

// checkAccess looks at a page on a wide screen and on a phone, light and dark.
func (b *tab) checkAccess() {
	b.Helper()
	require.Eventually(b, func() bool { // its colors have come
		isWhole, _ := chromedp.Run(b.at, chromedp.Evaluate[bool](`document.readyState === "complete"`))
		return isWhole
	}, waitFor, tick)
	for _, width := range []int64{1200, 360} {
		for _, scheme := range []string{"light", "dark"} {
			b.do(chromedp.EmulateViewport(width, 800))
			_, err := chromedp.Call(b.at, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			require.NoError(b, err)
			faults, err := chromedp.Run(b.at, chromedp.Evaluate[[]string](accessJS))
			require.NoError(b, err)
			require.Empty(b, faults, "%d, %s", width, scheme)
			b.keep(fmt.Sprintf("%d-%s", width, scheme))
		}
	}
	b.do(chromedp.EmulateViewport(1200, 800))
}

// keep stores a picture of the page, for a person to look at, in the folder that UNWIND_TEST_PICTURES
// names.
func (b *tab) keep(name string) {
	folder := os.Getenv("UNWIND_TEST_PICTURES")
	if folder == "" {
		return
	}
	at, err := chromedp.Run(b.at, chromedp.Title())
	require.NoError(b, err)
	picture, err := chromedp.Run(b.at, chromedp.FullScreenshot(100))
	require.NoError(b, err)
	name = regexp.MustCompile(`[^a-z0-9-]+`).ReplaceAllString(strings.ToLower(at+"-"+name), "-") + ".png"
	require.NoError(b, os.WriteFile(filepath.Join(folder, name), picture, 0o600))
}

func TestAPageThatIsOutOfDateDecidesNothing(t *testing.T) {
	d := newDesk(t)
	s := d.servePage()
	id, digest := d.waitsAtGate()
	at := "/tasks/" + id + "/steps/two"
	require.Contains(t, s.get(at, http.StatusOK), digest)
	said := s.post(at, url.Values{"do": {"approve"}, "digest": {"sha256:another"}}, http.StatusConflict)
	require.Contains(t, said, "decided nothing")
	require.Contains(t, s.post(at, url.Values{"do": {"reject"}, "digest": {digest}}, http.StatusConflict),
		"say why you reject it")
	require.Contains(t, s.post(at, url.Values{"do": {"approve"}}, http.StatusConflict), "load the page again")
	require.Empty(t, d.world.get("b"))

	d.ok("reject", id, "two", "--why", "not today")
	d.until(id, committed)
	said = s.post(at, url.Values{"do": {"approve"}, "digest": {digest}}, http.StatusConflict)
	require.Contains(t, said, "is closed: nothing waits there, and nothing was sent")
	require.NotContains(t, said, `value="approve"`)
	require.Contains(t, s.get("/tasks/"+id, http.StatusOK), "was rejected by "+currentUser()+": not today")
	s.get("/tasks/nobody", http.StatusNotFound)
	s.get("/nothing", http.StatusNotFound)
}

func TestWhatIsAlikeIsDecidedTogether(t *testing.T) {
	d := newDesk(t)
	s := d.servePage()
	agent := strings.ToLower(t.Name())
	file := d.file(strings.Replace(gated, "agent: bot", "agent: "+agent, 1))
	form := url.Values{"do": {"approve"}, "why": {"all the same"}}
	var ids []string
	for n := range 3 {
		id := fmt.Sprintf("%s-%d", agent, n)
		d.ok("run", file, "--id", id)
		ids = append(ids, id)
		form.Add("about", string(d.until(id, atGate).Gates[0].Digest)+" "+id+" two")
	}
	form.Add("about", "sha256:another "+ids[0]+" two")
	require.Eventually(t, func() bool {
		return strings.Contains(s.get("/?q="+agent, http.StatusOK), "3 changes by <code>fake.set</code>, agent "+agent)
	}, waitFor, tick)
	said := s.post("/decide", form, http.StatusOK)
	require.Contains(t, said, "approved: 3 of 4; not decided: two of "+ids[0])
	for _, id := range ids {
		require.Contains(t, strings.Join(d.until(id, committed).Report.Steps[1].Notes, "\n"), "all the same")
	}
	require.Eventually(t, func() bool {
		return strings.Contains(s.get("/?q="+agent, http.StatusOK), "nothing matches")
	}, waitFor, tick)
}

// TestWhatArrivesUnderAPersonsHandsIsNotDecided has gates arrive while a person reads the list, and
// while they press its button.
func TestWhatArrivesUnderAPersonsHandsIsNotDecided(t *testing.T) {
	d := newDesk(t)
	s := d.servePage()
	agent := strings.ToLower(t.Name())
	file := d.file(strings.Replace(gated, "agent: bot", "agent: "+agent, 1))
	ask := func(id string) string {
		d.ok("run", file, "--id", agent+id)
		d.until(agent+id, atGate)
		return agent + id
	}
	first, second := ask("-1"), ask("-2")
	file = d.file(strings.Replace(gated, "agent: bot", "agent: "+agent+"-other", 1)) // another batch
	ask("-other-1")
	ask("-other-2")
	file = d.file(strings.Replace(gated, "agent: bot", "agent: "+agent, 1))
	alike := func(many int) chromedp.Action[chromedp.Void] {
		return chromedp.WaitVisible(fmt.Sprintf(`//h2[contains(., "%d changes")]`, many))
	}
	b := s.browse()
	require.Eventually(t, func() bool { return strings.Count(s.get("/?q="+agent, http.StatusOK), "2 changes") == 2 },
		waitFor, tick)
	b.do(chromedp.Navigate(s.url+"/?q="+agent), alike(2), chromedp.Focus(`button[value="approve"]`))
	third := ask("-3")
	b.do(alike(3))
	focused, err := chromedp.Run(b.at, chromedp.Evaluate[string]("document.activeElement.value"))
	require.NoError(t, err)
	require.Equal(t, "approve", focused)

	release := b.press(`button[value="approve"]`)
	fourth := ask("-4")
	b.do(chromedp.Poll[chromedp.Void](`latest !== null`, chromedp.WithPollingTimeout(waitFor)))
	release()
	b.told("approved: 2 of 2")
	d.until(first, committed)
	d.until(second, committed)
	require.Len(t, d.state(third).Gates, 1)
	require.Len(t, d.state(fourth).Gates, 1)
}

// streams passes on what a browser asks a page for, and knows how many streams were open at once.
func (s *served) streams() (most *atomic.Int64) {
	to, err := url.Parse(s.url)
	require.NoError(s, err)
	passing, open, most := httputil.NewSingleHostReverseProxy(to), &atomic.Int64{}, &atomic.Int64{}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			now := open.Add(1)
			defer open.Add(-1)
			for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			}
		}
		passing.ServeHTTP(w, r)
	}))
	s.Cleanup(between.CloseClientConnections)
	s.url = between.URL
	return most
}

// TestPagesThatWereLeftHoldNoConnection goes through more pages than the six connections that a browser
// has to a server: it keeps pages that were left, for the way back.
func TestPagesThatWereLeftHoldNoConnection(t *testing.T) {
	d := newDesk(t)
	id, _ := d.waitsAtGate()
	s := d.servePage()
	most := s.streams()
	b := s.browse()
	b.do(chromedp.Navigate(s.url))
	run := func(script string) {
		t.Helper()
		require.Eventually(t, func() bool { // what is loaded earlier takes the place of the page before
			is, _ := ask[bool](b, `document.readyState === "complete"`)
			return is
		}, waitFor, tick)
		_, err := ask[bool](b, script+", true")
		require.NoError(t, err)
	}
	pages := []struct{ path, says string }{
		{"/tasks/" + id + "/steps/two", "Why it asks"}, {"/tasks/" + id, "Ledger"}, {"/?q=" + id, "Show only"},
	}
	for n := range 8 {
		run(fmt.Sprintf("location.assign(%q)", pages[n%3].path))
		b.says(pages[n%3].says)
	}
	run("history.back()")
	b.says("Why it asks")
	d.ok("approve", id, "two", "--yes")
	b.says("approved by") // it is kept up to date again
	require.Less(t, most.Load(), int64(6))
}

func TestStandingApprovalsAreListedAndRevokedOnThePage(t *testing.T) {
	d := newDesk(t)
	const vi, ap = "token-of-vi-0123456789", "token-of-ap-0123456789"
	s := d.servePage("vi "+vi+" viewer", "ap "+ap+" approver")
	s.post("/signin", url.Values{"token": {vi}}, http.StatusOK)
	require.Contains(t, s.get("/allowances", http.StatusOK), "There are no standing approvals.")
	g, id := d.allow("a"), t.Name()
	d.ok("run", d.file(asksTwice), "--id", id)
	d.until(id, atGate)
	at := "/allowances/" + g.ID
	require.NotContains(t, s.get("/allowances", http.StatusOK), at)
	s.post(at, nil, http.StatusForbidden)
	s.post("/signin", url.Values{"token": {ap}}, http.StatusOK)
	require.Contains(t, s.get("/allowances", http.StatusOK), at)
	s.send(http.MethodPost, at, nil, http.StatusForbidden, "Sec-Fetch-Site", "cross-site")
	require.Contains(t, s.post(at, url.Values{"why": {strings.Repeat("é", 201)}}, http.StatusUnprocessableEntity),
		"why: 201 characters, more than 200: nothing was revoked")
	require.Nil(t, d.allowances()[0].Revoked)

	b := s.browse()
	b.do(chromedp.Navigate(s.url+"/signin?to=/allowances"), chromedp.SendKeys("[name=token]", ap), chromedp.Submit("[name=token]"))
	b.says("Agent bot: fake.set")
	for _, text := range []string{"fake:a", "up to high", "by " + currentUser() + " (a claim: not signed): the release", "1 of 2"} {
		require.Contains(t, b.reads(), text)
	}
	b.do(chromedp.Click("summary"))
	require.Contains(t, b.reads(), "step one of "+id)
	b.checkAccess()
	b.do(chromedp.SendKeys("[name=why]", "the release is over"), chromedp.Submit("[name=why]"))
	b.told("revoked: standing approval " + g.ID + " of agent bot")
	require.Contains(t, b.reads(), "it was revoked by ap: the release is over")
	require.NotContains(t, s.get("/allowances", http.StatusOK), at)
	b.checkAccess()
	require.Equal(t, "ap", d.allowances()[0].Revoked.Who)

	require.Contains(t, s.post("/allowances/0123456789ab", nil, http.StatusConflict), "nothing was changed")
	d.ok("reject", id, "two", "--why", "no")
}

func TestRolesOfThePage(t *testing.T) {
	d := newDesk(t)
	const vi, ap, op = "token-of-vi-0123456789", "token-of-ap-0123456789", "token-of-op-0123456789"
	s := d.servePage("vi "+vi+" viewer", "ap "+ap+" approver", "op "+op)
	id, digest := d.waitsAtGate()
	at, form := "/tasks/"+id+"/steps/two", url.Values{"do": {"approve"}, "digest": {digest}}
	require.Contains(t, s.get(at, http.StatusOK), `action="/signin"`)
	s.post("/signin", url.Values{"token": {"token-of-nobody-0123456789"}}, http.StatusUnauthorized)

	s.post("/signin", url.Values{"token": {vi}}, http.StatusOK)
	require.NotContains(t, s.get(at, http.StatusOK), `value="approve"`)
	require.Contains(t, s.post(at, form, http.StatusForbidden), "your role, viewer, does not let you do this")
	s.post("/signin", url.Values{"token": {ap}}, http.StatusOK)
	s.post("/tasks/"+id, url.Values{"do": {"cancel"}}, http.StatusForbidden)
	s.send(http.MethodPost, at, form, http.StatusForbidden, "Sec-Fetch-Site", "cross-site")
	require.Empty(t, d.world.get("b"))
	s.post(at, form, http.StatusOK)
	require.Contains(t, d.until(id, committed).Report.Steps[1].Notes[0], "approved by ap")

	s.post("/signin", url.Values{"token": {op}}, http.StatusOK)
	require.Contains(t, s.post("/tasks/"+id, url.Values{"do": {"rollback"}, "why": {"enough"}}, http.StatusOK), "rolls back")
	s.post("/signout", nil, http.StatusOK)
	require.Contains(t, s.get("/", http.StatusOK), `action="/signin"`)
}

func TestAParkedUndoIsResolvedOnThePage(t *testing.T) {
	d := newDesk(t)
	s := d.servePage()
	d.world.breakUndo(true)
	id := regexp.MustCompile(`(?m)^task (\S+)$`).FindStringSubmatch(d.ok("run", d.file(failing)))[1]
	step := parkedSteps(d.until(id, parked))[0]
	at := "/tasks/" + id + "/steps/" + step
	require.Eventually(t, func() bool { return strings.Contains(s.get("/?q="+id, http.StatusOK), at) }, waitFor, tick)
	digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(s.get(at, http.StatusOK))[1]
	d.world.breakUndo(false)
	said := s.post(at, url.Values{"do": {"retry"}, "digest": {digest}, "why": {"try now"}}, http.StatusOK)
	require.Contains(t, said, "resolved: retry of step "+step)
	d.until(id, committed)
	require.Empty(t, d.world.get("a"))
}
