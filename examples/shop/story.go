package shop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// Operator carries out operations on the environment, and prints what came of them.
type Operator interface {
	Checkpoint(ctx context.Context, notes string) (environment.Checkpoint, error)
	RollBack(ctx context.Context, to string) (environment.RolledBack, error)
	Compare(ctx context.Context, from, to string) error
}

// teller tells the story as it happens.
type teller struct {
	*Stage
	Operator

	out    io.Writer
	prober *prober
}

// Play plays the story, and prints it. Its error says what is not as the story has it.
func (s *Stage) Play(ctx context.Context, o Operator, out io.Writer) error {
	t := teller{Stage: s, Operator: o, out: out, prober: &prober{url: s.URL}}
	t.prober.during("the beginning", true)
	probing, stop := context.WithCancel(ctx)
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		t.prober.probe(probing)
	}()
	err := t.tell(ctx)
	stop()
	<-probed
	if err != nil {
		return err
	}
	return t.tellTimes()
}

func (t teller) sayf(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// chapter begins what is done next. calm: nothing of it stops the shop.
func (t teller) chapter(title string, calm bool) {
	t.prober.during(title, calm)
	t.sayf("\n== %s", title)
}

// tell does everything in its order, and looks at the shop after each operation.
func (t teller) tell(ctx context.Context) error {
	t.chapter("the shop works", true)
	old, err := t.works(ctx)
	if err != nil {
		return err
	}
	t.chapter("a checkpoint before the upgrade", false)
	first, err := t.Checkpoint(ctx, "before the upgrade")
	if err != nil {
		return err
	}
	before, err := t.look(ctx)
	if err != nil {
		return err
	}
	failed, err := t.upgrade(ctx)
	if err != nil {
		return err
	}
	t.chapter("the rollback to the checkpoint", false)
	back, err := t.RollBack(ctx, first.ID)
	if err != nil {
		return err
	}
	if err := t.isAgain(ctx, "at the checkpoint", before, old); err != nil {
		return err
	}
	t.chapter("forward again into the failure, to debug it", false)
	if _, err := t.RollBack(ctx, back.Safety.ID); err != nil {
		return err
	}
	now, err := t.look(ctx)
	if err == nil {
		err = checkSame("before it was rolled back", failed, now)
	}
	if err != nil {
		return err
	}
	if _, err := t.answers(ctx, "health", http.StatusInternalServerError); err != nil {
		return err
	}
	t.chapter("what is different in the failure", true)
	if err := t.Compare(ctx, first.ID, back.Safety.ID); err != nil {
		return err
	}

	t.chapter("the fix", true)
	if err := t.release(ctx, fixChapter, "Call the column as pricelist 2 does"); err != nil {
		return err
	}
	if err := t.sayCommit(ctx); err != nil {
		return err
	}
	if _, err := t.works(ctx); err != nil {
		return err
	}
	t.chapter("a checkpoint of the release that works", false)
	last, err := t.Checkpoint(ctx, "release 1.5.0 works")
	if err != nil {
		return err
	}
	if last.Healthy == nil || !*last.Healthy {
		return errors.New("the checkpoint of the fixed shop says that it is not healthy")
	}
	t.chapter("what the story has changed", true)
	return t.isFixed(ctx, before)
}

// upgrade is what the agent does, and how it fails.
func (t teller) upgrade(ctx context.Context) (failed found.Snapshot, err error) {
	t.chapter("an agent upgrades a library, migrates the schema, adds an upload", true)
	if err := t.release(ctx, upgradeChapter, "Upgrade pricelist to 2.0.0"); err != nil {
		return nil, err
	}
	if err := t.sayCommit(ctx); err != nil {
		return nil, err
	}
	t.chapter("the agent restarts the shop", false)
	for _, command := range []string{"stop", "start"} {
		if err := t.command(ctx, command); err != nil {
			return nil, err
		}
	}
	t.prober.during("the release that fails", true)
	if _, err := t.answers(ctx, "health", http.StatusInternalServerError); err != nil {
		return nil, err
	}
	return t.look(ctx)
}

// sayCommit says what the last commit has changed.
func (t teller) sayCommit(ctx context.Context) error {
	said, err := t.git(ctx, "show", "--format=commit %h: %s", "--unified=0", "--no-prefix", "--", "lib", "migrations")
	if err != nil {
		return err
	}
	for line := range strings.Lines(said) {
		if text := strings.TrimSpace(line); text != "" && !isHeader(text) {
			t.sayf("%s", text)
		}
	}
	return nil
}

// isHeader says that a line of a diff is about files, and not of them.
func isHeader(line string) bool {
	return slices.ContainsFunc([]string{"diff ", "index ", "--- ", "new file ", "@@ "}, func(prefix string) bool {
		return strings.HasPrefix(line, prefix)
	})
}

// answers asks the shop, says what it answers, and fails where that is not what it should.
func (t teller) answers(ctx context.Context, path string, want int) (body string, err error) {
	status, body, err := get(ctx, t.URL+path)
	if err != nil {
		return "", err
	}
	t.sayf("%s%s answers %d: %s", t.URL, path, status, strings.Join(strings.Fields(body), " "))
	if status != want {
		return "", fmt.Errorf("%s%s answers %d, and should %d: %s", t.URL, path, status, want, body)
	}
	return body, nil
}

// works asks for the page, and whether the shop is healthy.
func (t teller) works(ctx context.Context) (page string, err error) {
	if _, err := t.answers(ctx, "health", http.StatusOK); err != nil {
		return "", err
	}
	return t.answers(ctx, "", http.StatusOK)
}

// isAgain checks that all parts are as before, and that the shop serves the same page.
func (t teller) isAgain(ctx context.Context, when string, before found.Snapshot, page string) error {
	now, err := t.look(ctx)
	if err != nil {
		return err
	}
	if err := checkSame(when, before, now); err != nil {
		return err
	}
	body, err := t.works(ctx)
	if err != nil {
		return err
	}
	if body != page {
		return fmt.Errorf("the page is not the same as %s:\n%s", when, body)
	}
	t.sayf("✓ as %s, and the same page: %s", when, describe(now))
	return nil
}

// isFixed checks that the story has changed what it tells of, and nothing else.
func (t teller) isFixed(ctx context.Context, before found.Snapshot) error {
	now, err := t.look(ctx)
	if err != nil {
		return err
	}
	var changes []string
	for _, c := range before.Changes(now) {
		changes = append(changes, c.Sign+" "+c.Thing)
	}
	want := []string{
		"~ code/app.json", "~ code/lib/pricelist/plans.sql", "+ code/migrations/002-price.sql",
		"+ code/migrations/003-price-cents.sql", "~ git", "- row plan(legacy,900)", "~ table plan", "+ uploads/notes.txt",
	}
	if !slices.Equal(changes, want) {
		return fmt.Errorf("the story should have changed\n  %s\nand has changed\n  %s", strings.Join(want, "\n  "),
			strings.Join(changes, "\n  "))
	}
	for thing, want := range map[string]found.Facts{
		gitThing: {"status": "",
			"log": "Call the column as pricelist 2 does\nUpgrade pricelist to 2.0.0\nSell plans"},
		"table plan": {columnsFact: "name text NO, price_cents integer NO"},
	} {
		for name, value := range want {
			if is := now[thing][name]; is != value {
				return fmt.Errorf("%s of %s is %q, and should be %q", name, thing, is, value)
			}
		}
	}
	t.sayf("✓ what it tells, and nothing else: %s", describe(now))
	return nil
}

// tellTimes prints for how long the shop did not answer, and checks that it did answer while
// nothing had it stopped.
func (t teller) tellTimes() error {
	t.sayf("\n%s, asked every %v all along:", t.URL, probePause)
	table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, " NO ANSWER\tAN ERROR\tDURING")
	var problems []error
	for _, s := range t.prober.times {
		if s.down > 0 && s.calm {
			problems = append(problems, fmt.Errorf("the shop did not answer for %v, while nothing had it stopped: %s",
				s.down.Round(time.Millisecond), s.doing))
		}
		if s.down+s.broken > 0 {
			fmt.Fprintf(table, " %.1fs\t%.1fs\t%s\n", s.down.Seconds(), s.broken.Seconds(), s.doing)
		}
	}
	return errors.Join(append(problems, table.Flush())...)
}
