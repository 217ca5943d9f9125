package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browser is a tab that shows the page.
type browser struct {
	tab     context.Context //nolint:containedctx // it is the tab
	address string
}

// slow is how long a page may take before the bench gives up.
const slow = 30 * time.Second

// lost is when a script that was sent while one page followed another counts as lost: the browser may
// never answer it.
const lost = time.Second

func openBrowser(ctx context.Context, dir, address string) (b *browser, closeIt func(), err error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, errors.New("chromium is not on PATH: install the package chromium")
	}
	process, closeProcess := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(dir))...)
	tab, closeTab := chromedp.NewContext(process)
	return &browser{tab, address}, func() { closeTab(); closeProcess() }, chromedp.Do(tab) // it starts
}

func (b *browser) open(path string) error {
	limited, cancel := context.WithTimeout(b.tab, slow)
	defer cancel()
	if err := chromedp.Do(limited, chromedp.Navigate(b.address+path)); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	return nil
}

// evaluate asks the document that is shown now: a copy of it would be out of date once the page
// replaces its content.
func evaluate[T any](b *browser, script string) (T, error) { return evaluateWithin[T](b, slow, script) }

func evaluateWithin[T any](b *browser, limit time.Duration, script string) (T, error) {
	limited, cancel := context.WithTimeout(b.tab, limit)
	defer cancel()
	return chromedp.Run(limited, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// await waits until a script says that something is so.
func (b *browser) await(script string) error {
	_, err := b.awaitText(fmt.Sprintf(`(%s) ? "so" : ""`, script))
	return err
}

// awaitText waits until a script finds a text. While one page follows another no script can be asked.
func (b *browser) awaitText(script string) (text string, err error) {
	for end := time.Now().Add(slow); time.Now().Before(end); {
		if text, err = evaluateWithin[string](b, lost, script); text != "" {
			return text, nil
		}
		select {
		case <-b.tab.Done():
			return "", b.tab.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	shown, _ := evaluate[string](b, `location.href + "\n" + document.body.innerText.slice(0, 500)`)
	return "", errors.Join(fmt.Errorf("never so: %s; the page shows %s", script, shown), err)
}

// press focuses what a script finds, and presses Enter.
func (b *browser) press(found string) error {
	if _, err := evaluate[bool](b, fmt.Sprintf(`(%s).focus(), true`, found)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(b.tab, slow)
	defer cancel()
	return chromedp.Do(limited, chromedp.KeyEvent(kb.Enter))
}

// measurePaint looks at a page several times, after one to warm up.
func (b *browser) measurePaint(path string) (paint, error) {
	const seen = `new Promise((done) => new PerformanceObserver((list) => {
		for (const e of list.getEntriesByName("first-contentful-paint"))
			done([e.startTime, performance.getEntriesByType("navigation")[0].responseStart]);
	}).observe({type: "paint", buffered: true}))`
	var paints, answers []float64
	for range looks + 1 {
		if err := b.open(path); err != nil {
			return paint{}, err
		}
		ms, err := evaluate[[]float64](b, seen)
		if err != nil {
			return paint{}, err
		}
		paints, answers = append(paints, ms[0]), append(answers, ms[1])
	}
	return paint{path, median(paints[1:]), slices.Max(paints[1:]), median(answers[1:])}, nil
}

// said is what the page says a decision has come to; empty: nothing yet.
const said = `document.querySelector(".told:not(#stale)")?.innerText ?? ""`

// approveOneByOne opens what stands first in the inbox, reads it, and approves it, again and again, with
// the keyboard alone.
func (b *browser) approveOneByOne(f *pageFigures) error {
	began := time.Now()
	if err := b.open("/"); err != nil {
		return err
	}
	f.Kinds = map[string]int{}
	for n := range approvals {
		const gate = `document.querySelector('.facts a[href*="/steps/"]')`
		err := b.await(`location.pathname === "/" && !!` + gate)
		if err == nil {
			err = b.press(gate)
		}
		if err == nil {
			err = b.await(`!!document.querySelector('main form button[value="approve"]')`)
		}
		if err != nil {
			return fmt.Errorf("approval %d: %w", n, err)
		}
		text, err := evaluate[string](b, `document.querySelector("main").innerText`)
		if err != nil {
			return err
		}
		kind, err := readGate(text)
		if err != nil {
			return fmt.Errorf("approval %d: %w", n, err)
		}
		f.Kinds[kind]++
		if err := b.press(`document.querySelector('button[value="approve"]')`); err != nil {
			return err
		}
		told, err := b.awaitText(said)
		if err != nil {
			return fmt.Errorf("approval %d: %w", n, err)
		}
		if !strings.HasPrefix(told, "approved: ") {
			return fmt.Errorf("approval %d: %s", n, told)
		}
		if err := b.press(`document.querySelector('header a[href="/"]')`); err != nil {
			return err
		}
	}
	f.OneByOneS = time.Since(began).Seconds()
	return nil
}

// readGate finds in a gate what a person decides by: the action, and what it would change.
func readGate(text string) (kind string, err error) {
	for kind, change := range map[string]string{"noop.step": "nothing", "file.write": "\n+", "file.delete": "delete"} {
		if strings.Contains(text, kind) && strings.Contains(text, change) {
			return kind, nil
		}
	}
	return "", fmt.Errorf("the gate does not say what is changed: %s", text)
}

// approveBatches approves the first batch of the inbox, again and again.
func (b *browser) approveBatches(f *pageFigures) error {
	began := time.Now()
	for done := 0; done < approvals; {
		const batch = `document.querySelector('form[action="/decide"] button[value="approve"]')`
		if err := b.open("/"); err != nil {
			return err
		}
		err := b.await("!!" + batch)
		if err == nil {
			err = b.press(batch)
		}
		if err != nil {
			return err
		}
		told, err := b.awaitText(said)
		if err != nil {
			return err
		}
		var counted, of int
		if _, err := fmt.Sscanf(told, "approved: %d of %d", &counted, &of); err != nil || counted == 0 {
			return fmt.Errorf("a batch: %s", told)
		}
		done += counted
	}
	f.BatchesS = time.Since(began).Seconds()
	return nil
}
