package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

// view is what every page has.
type view struct {
	Title  string
	Person bearer.Person
	// SignsIn says that persons sign in and out, and Signs that they sign decisions by passkeys.
	SignsIn, Signs bool
	// Told is what the last decision has come to; Problem is why something was not done.
	Told, Problem string
	// Waiting is how much waits for a person, and Stream the address that keeps the page up to date;
	// empty: it stays as it is.
	Waiting int
	Stream  string
	Body    any

	main []byte
}

// Main is the body of the page, as HTML that a template has made.
func (v view) Main() template.HTML { return template.HTML(v.main) } //nolint:gosec // it is escaped already

// clock is a text that changes by itself as time passes.
var clock = regexp.MustCompile(`(?s)<(time|span class="clock")[ >].*?</(time|span)>`)

// shown identifies what a page shows, but for its clocks.
func (v view) shown() string {
	return fmt.Sprintf("%x", sha256.Sum256(clock.ReplaceAll(v.main, nil)))[:16]
}

// write makes the body.
func (v *view) write(name string) error {
	var b bytes.Buffer
	err := pages[name].ExecuteTemplate(&b, "body", v)
	v.main = b.Bytes()
	return err
}

//go:embed templates
var templates embed.FS

// pages are the templates by name, each with the frame around it.
var pages = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range []string{"signin", "problem", "inbox", "tasks", "task", "step", "trace", "allowances",
		"passkey"} {
		all[name] = template.Must(template.New("frame.html").Funcs(functions).ParseFS(templates, "templates/frame.html",
			"templates/parts.html", "templates/"+name+".html"))
	}
	return all
}()

// functions are what templates can call. Texts of the world, of agents and of persons pass through
// text: HTML is escaped anyway, and what would turn the direction of writing, or show nothing, is
// made visible.
var functions = template.FuncMap{
	"text":  terminal.Printable,
	"line":  terminal.OneLine,
	"took":  terminal.Duration,
	"count": activities.CountOf[int],
	"join":  func(all []string) string { return terminal.OneLine(strings.Join(all, "; ")) },
	"path":  url.PathEscape,
	"diff":  diffLines,
	"tone":  tone,
	"stamp": func(t time.Time) string { return terminal.LocalTime(t, "2006-01-02 15:04:05") },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ago":   func(t time.Time) string { return terminal.Duration(time.Since(t)) },
	"left":  left,
}

// left is the time until t, for people.
func left(t time.Time) string {
	d := time.Until(t)
	switch days := int(d.Hours() / 24); {
	case d <= 0:
		return "no time left"
	case days >= 2:
		return terminal.Plural(days, "day") + " left"
	}
	return terminal.Duration(d) + " left"
}

// diffLine is a line of a diff, with how it is shown.
type diffLine struct{ Class, Text string }

func diffLines(diff string) (lines []diffLine) {
	for text := range strings.SplitSeq(strings.TrimRight(terminal.Printable(diff), "\n"), "\n") {
		class := ""
		switch trimmed := strings.TrimLeft(text, " "); {
		case strings.HasPrefix(trimmed, "+"):
			class = "added"
		case strings.HasPrefix(trimmed, "-"):
			class = "removed"
		case strings.HasPrefix(trimmed, "~"):
			class = "changed"
		}
		lines = append(lines, diffLine{class, text})
	}
	return lines
}

// tone is how a state is shown: what it means for people, beside its word.
func tone(state string) string {
	switch state {
	case "done", "committed", "restored", "unwound", "redone", "nothing-to-undo", "low":
		return "good"
	case "at-gate", "parked", "waiting", "waits at a gate", "waits for a person", "stuck", "medium":
		return "waits"
	case "failed", "unwound-with-remains", "partly-committed", "drifted", "residue", "unknown", "accepted", "skipped",
		"high":
		return "bad"
	case "running", "planning", "forward", "unwinding", "compiling", "open", "undoing":
		return "busy"
	}
	return "plain"
}

// render writes a page.
func (s *Server) render(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	v.Waiting, v.SignsIn, v.Signs = s.inbox.count(), s.Anybody == nil, s.Signers != nil
	if v.Told == "" {
		v.Told = takeTold(w, r)
	}
	var b bytes.Buffer
	err := v.write(name)
	if err == nil {
		if v.Stream != "" {
			v.Stream += "&shown=" + v.shown()
		}
		err = pages[name].Execute(&b, v)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("the page cannot be written: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // whoever is gone reads nothing
}

// fail writes a page that says what went wrong.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, p bearer.Person, status int, problem string) {
	s.render(w, r, status, "problem", view{Title: "Not done", Person: p, Problem: problem})
}

const toldCookie = "unwind-told"

// tell keeps a text for the next page that is shown, and goes there.
func tell(w http.ResponseWriter, r *http.Request, to, text string) {
	http.SetCookie(w, cookieOf(r, toldCookie, base64.URLEncoding.EncodeToString([]byte(terminal.Clip(text, maxTold))), 60))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// maxTold is how many characters of it are kept.
const maxTold = 600

func takeTold(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie(toldCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, cookieOf(r, toldCookie, "", -1))
	text, _ := base64.URLEncoding.DecodeString(cookie.Value) // what is no text says nothing
	return string(text)
}
