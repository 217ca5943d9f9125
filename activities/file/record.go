package file

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Documents of a token besides those of package journal.
const (
	leftDoc = "left" // the change is made: the forward has seen each original come out
	planDoc = "plan" // what an undo will do, written before it does any of it
)

// record is all that must be known before the first byte of a change.
type record struct {
	journal.Owned
	Want activities.Digest `json:"want,omitempty"`
	// Attempt names the folder of the forward's tickets.
	Attempt string `json:"attempt"`
	Ops     []op   `json:"ops"`
	// Given are the paths as the step names them.
	Given []namedPath `json:"given,omitempty"`
	// Parents are the folders that the changes are in.
	Parents []parent `json:"parents,omitempty"`
	// Times are the times that a redo sets on those folders.
	Times  []parent          `json:"times,omitempty"`
	Result activities.Result `json:"result"`
}

// op is one change: at Target, Pre becomes Post.
type op struct {
	// Target is the path below the root.
	Target string `json:"target"`
	Pre    tree   `json:"pre"`
	Post   tree   `json:"post"`
	// Private: the content must not be shown.
	Private bool `json:"private,omitempty"`
	// Text is the new content if it is short and not private, to show what someone else has changed in
	// it.
	Text *string `json:"text,omitempty"`
}

// namedPath is a path that a step names, and its place in a change.
type namedPath struct {
	Path  string `json:"path"`
	Op    int    `json:"op"`
	Below string `json:"below"` // the file's path in the op's tree, "." for its top
	Rel   string `json:"rel"`   // its path in the root
}

// parent is a folder and its time.
type parent struct {
	Path string `json:"path"`
	Time int64  `json:"time"` // nanoseconds since 1970
}

// parentsAfter is the content of leftDoc: the parents as the step left them.
type parentsAfter struct {
	Parents []parent `json:"parents,omitempty"`
}

// plan is the content of planDoc.
type plan struct {
	// Acted: the forward had changed something.
	Acted bool `json:"acted"`
	// Parents have the times to be restored.
	Parents []parent `json:"parents,omitempty"`
	// Notes go into the report.
	Notes []string `json:"notes,omitempty"`
	// Kept is what the undo removes of each change and keeps for a redo, and Was the times of the
	// folders before. If empty, nothing is kept.
	Kept  []tree    `json:"kept,omitempty"`
	Was   []parent  `json:"was,omitempty"`
	Began time.Time `json:"began"`
}

// timeOf is the time of a folder; false if it does not exist.
func (r *root) timeOf(folder string) (int64, bool, error) {
	st, there, err := r.statOf(folder)
	return unix.TimespecToNsec(st.Mtim), there, err
}

func (r *root) statOf(folder string) (st unix.Stat_t, there bool, err error) {
	f, err := r.dir.Open(folder)
	if err != nil {
		if isLost(err) {
			return st, false, nil
		}
		return st, false, err
	}
	defer f.Close()
	err = unix.Fstat(int(f.Fd()), &st)
	return st, err == nil, err
}

// times are the current times of folders; missing ones are left out.
func (r *root) times(folders []parent) ([]parent, error) {
	var now []parent
	for _, p := range folders {
		t, there, err := r.timeOf(p.Path)
		if err != nil {
			return nil, err
		}
		if there {
			now = append(now, parent{p.Path, t})
		}
	}
	return now, nil
}

func timeIn(folders []parent, path string) (int64, bool) {
	for _, p := range folders {
		if p.Path == path {
			return p.Time, true
		}
	}
	return 0, false
}
