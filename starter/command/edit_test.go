package command

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func isEdited(s protocol.State) bool { return atGate(s) && s.Gates[0].Edited != "" }

func TestAStepIsEditedAtItsGateAndThenApproved(t *testing.T) {
	d := newDesk(t)
	id, digest := d.waitsAtGate()
	for why, flags := range map[string][]string{
		"--do edit: give the new parameters":              {"--yes"},
		"--digest sha256:00 is out of date":               {"--with", "value=z", "--digest", "sha256:00"},
		`unknown parameter; did you mean value?`:          {"--with", "valu=z", "--yes"},
		"these are the parameters that step":              {"--with", "value=y", "--yes"},
		"this worker's config does not allow this secret": {"--with", "value=${{ secrets.OTHER }}", "--yes"},
		"step one of task " + id + " is not at a gate":    nil,
	} {
		step := "two"
		if flags == nil {
			step, flags = "one", []string{"--with", "value=z", "--yes"}
		}
		r := d.do(append([]string{"resolve", id, step, "--do", "edit"}, flags...)...)
		require.NotEqual(t, statusOK, r.status)
		require.Contains(t, r.err, why)
	}
	require.Equal(t, digest, string(d.until(id, atGate).Gates[0].Digest))
	out := d.ok("resolve", id, "two", "--do", "edit", "--with", "value=${{ steps.one.outputs.before }}z", "--digest", digest,
		"--why", "a typo")
	require.Contains(t, out, "edited: step two of task "+id+" is planned anew")
	again := d.until(id, isEdited).Gates[0]
	require.NotEqual(t, digest, string(again.Digest))
	require.Empty(t, d.world.get("b"))
	require.Contains(t, d.ok("show", id), "edited by "+currentUser()+`: value from "y" to "${{ steps.one.outputs.before }}z": a typo`)
	stale := d.do("approve", id, "two", "--digest", digest)
	require.Contains(t, stale.err, "is out of date")

	d.stopWorker()
	d.startWorker()
	d.ok("approve", id, "two", "--digest", string(again.Digest))
	d.until(id, committed)
	require.Equal(t, "z", d.world.get("b"))
	require.Contains(t, d.ok("show", id), "a typo")
}

func TestAnEditIsSignedAndSoIsItsApproval(t *testing.T) {
	d, s := newSigned(t)
	id := t.Name()
	d.ok("run", d.file(gated), "--id", id)
	g := d.until(id, atGate).Gates[0]
	edit := []string{"resolve", id, "two", "--do", "edit", "--with", "value=z", "--yes"}
	eve := newSigners(t, "eve")
	require.Contains(t, d.do(append(edit, eve.by("eve")...)...).err, "resolve decided nothing")
	require.Equal(t, g.Digest, d.until(id, atGate).Gates[0].Digest)
	d.ok(append(edit, s.by("ann")...)...)
	require.Regexp(t, `edited by ann \(key SHA256:\S+\): value from "y" to "z"`, d.until(id, isEdited).Gates[0].Edited)
	require.True(t, d.state(id).Gates[0].Signed)
	d.ok(append([]string{"approve", id, "two", "--yes"}, s.by("bob")...)...)
	d.until(id, closed)
	require.Equal(t, [2]string{"x", "z"}, d.values())
}

// TestAPersonEditsAStepInABrowser types with the keyboard alone.
func TestAPersonEditsAStepInABrowser(t *testing.T) {
	d := newDesk(t)
	id, digest := d.waitsAtGate()
	s := d.servePage()
	b := s.browse()
	at := "/tasks/" + id + "/steps/two"
	b.do(chromedp.Navigate(s.url+at), chromedp.Focus("#edit summary"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#with"))
	b.checkAccess()
	typed := func(text string) {
		b.do(chromedp.Focus("#with"), chromedp.KeyEvent("a", chromedp.KeyModifiers(2)), chromedp.KeyEvent(text))
	}
	typed("value: z\nkey: [b]")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("a typo"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.told("steps.two.with.key: ")
	require.Eventually(t, func() bool { // the browser moves there once it has shown the page
		is, _ := ask[bool](b, `document.activeElement.id === "with"`)
		return is
	}, waitFor, tick)
	left, err := chromedp.Run(b.at, chromedp.Evaluate[[]string](
		`[document.querySelector("#with").value, document.querySelector("#edit-why").value]`))
	require.NoError(t, err)
	require.Equal(t, []string{"value: z\nkey: [b]", "a typo"}, left)
	b.checkAccess()
	require.Equal(t, digest, string(d.state(id).Gates[0].Digest))

	typed("value: z\nkey: b")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.told("edited: step two is planned anew")
	b.says(`edited by ` + currentUser() + `: value from "y" to "z": a typo`)
	b.says("+z")
	require.Empty(t, d.world.get("b"))

	// What is edited while somebody reads it is not put under their hands.
	d.ok("resolve", id, "two", "--do", "edit", "--with", "value=other", "--yes")
	b.says("Meanwhile this has changed")
	require.Contains(t, s.post(at, url.Values{"do": {"approve"}, "digest": {digest}}, http.StatusConflict), "decided nothing")
	said := s.post(at, url.Values{"do": {"edit"}, "digest": {digest}, "with": {"value: late"}}, http.StatusConflict)
	require.Contains(t, said, "is not that of the present gate")
	require.Contains(t, said, "value: late")
	b.do(chromedp.Navigate(s.url+at), chromedp.Focus("#why"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.told("approved: step two goes on")
	d.until(id, committed)
	require.Equal(t, "other", d.world.get("b"))
}
