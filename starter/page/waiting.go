package page

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"

	"github.com/seed-62bf7108/unwind/starter/bearer"
)

// batch are things that wait and are alike: they can be decided together.
type batch struct {
	Agent, Action string
	// Below is the folder, or the beginning, that all that they touch has in common.
	Below string
	Items []item

	nth int // of those of this agent and action
}

// Several says that it is more than one, and so is decided as one.
func (b batch) Several() bool { return len(b.Items) > 1 }

// ID is by what a page knows the batch again, whatever comes to it or is decided meanwhile.
func (b batch) ID() string {
	return "batch-" + activities.DigestOf([]byte(b.Agent), []byte(b.Action), fmt.Append(nil, b.nth)).Short()
}

const (
	// inBatch is how many things a batch has, and onPage how many all batches of a page have: what a
	// browser shows at once.
	inBatch = 50
	onPage  = 100
)

// batches puts together what is alike: gates of the same agent for the same action. What is risky,
// or must be signed, is decided one by one.
func batches(items []item) (all []batch) {
	at := map[string]int{}
	for _, i := range items {
		if i.Kind != gate || i.Risk == activities.High || i.Signed {
			all = append(all, batch{Agent: i.Agent, Action: i.Action, Items: []item{i}})
			continue
		}
		key := i.Agent + "\x00" + i.Action
		n, isThere := at[key]
		if !isThere || len(all[n].Items) >= inBatch {
			nth := 0
			if isThere {
				nth = all[n].nth + 1
			}
			n = len(all)
			at[key], all = n, append(all, batch{Agent: i.Agent, Action: i.Action, nth: nth})
		}
		all[n].Items = append(all[n].Items, i)
	}
	for n := range all {
		all[n].Below = commonFolder(all[n].Items)
	}
	return all
}

// commonFolder is the deepest folder that has all that is touched; empty if there is none.
func commonFolder(items []item) (folder string) {
	for _, i := range items {
		for _, key := range i.Keys {
			_, name, isPath := strings.Cut(key, ":")
			if !isPath || !strings.HasPrefix(name, "/") {
				return ""
			}
			if folder == "" {
				folder = path.Dir(name)
			}
			for folder != "/" && !strings.HasPrefix(name, folder+"/") {
				folder = path.Dir(folder)
			}
		}
	}
	return folder
}

// inboxPage is the page of what waits.
type inboxPage struct {
	// Stale says why the list may not be what waits now; empty if it is.
	Stale   string
	Batches []batch
	Filter  string
	Shown   int
	All     int
	Pages   turning
}

// turning leads to the pages before and after this one; empty where there is none.
type turning struct{ Before, After string }

// turn takes the batches of the page that r asks for.
func turn(all []batch, r *http.Request) (part []batch, t turning) {
	pages := [][]batch{nil}
	shown := 0
	for _, b := range all {
		if shown > 0 && shown+len(b.Items) > onPage {
			pages, shown = append(pages, nil), 0
		}
		last := len(pages) - 1
		pages[last] = append(pages[last], b)
		shown += len(b.Items)
	}
	n, _ := strconv.Atoi(r.FormValue("page")) // what is no number is the first page
	n = min(max(n, 1), len(pages))
	if n > 1 {
		t.Before = pageAddress(r, n-1)
	}
	if n < len(pages) {
		t.After = pageAddress(r, n+1)
	}
	return pages[n-1], t
}

func pageAddress(r *http.Request, n int) string {
	query := url.Values{}
	for name, values := range r.URL.Query() {
		query[name] = slices.Clone(values)
	}
	query.Set("page", strconv.Itoa(n))
	return r.URL.Path + "?" + query.Encode()
}

func (s *Server) showInbox(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	s.render(w, r, http.StatusOK, "inbox", s.inboxView(r, p))
}

func (s *Server) inboxView(r *http.Request, p bearer.Person) view {
	items, problem := s.inbox.all(r.Context())
	body := inboxPage{Stale: problem, Filter: strings.TrimSpace(r.FormValue("q")), All: len(items)}
	items = slices.DeleteFunc(items, func(i item) bool { return !i.has(body.Filter) })
	body.Shown = len(items)
	body.Batches, body.Pages = turn(batches(items), r)
	return view{Title: fmt.Sprintf("Waiting (%d)", body.All), Person: p, Stream: streamOf(r), Body: body}
}

// has says that what a person looks for is in one of the texts.
func (i item) has(words string) bool {
	all := strings.ToLower(strings.Join([]string{i.Task, i.Name, i.Agent, i.Step, i.Action, string(i.Kind), string(i.Risk),
		i.Summary}, "\n"))
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(words)),
		func(word string) bool { return !strings.Contains(all, word) })
}
