package terraform

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// order is passed by a worker to the front that terraform-exec starts, in its environment.
type order struct {
	// Terraform is the real program.
	Terraform string `json:"terraform"`
	// Version is its version, if the worker knows it already.
	Version string `json:"version,omitempty"`
	// Out is the folder for the output of a supervised terraform; empty: terraform runs unsupervised.
	Out string `json:"out,omitempty"`
	// Run is the number of a run that may change something, with a lock, a fence and documents. Zero: it only reads.
	Run int `json:"run,omitempty"`
	// Journal and Token identify the owner of the run.
	Journal string `json:"journal,omitempty"`
	Token   string `json:"token,omitempty"`
	// Turn is the number of the undo that runs it; zero for a forward.
	Turn int `json:"turn,omitempty"`
	// What is its operation: whatApply, "state push", "import" ...
	What string `json:"what,omitempty"`
}

// whatApply is a run that applies a plan.
const whatApply = "apply"

// orderVar is the environment variable with the order.
const orderVar = "UNWIND_TERRAFORM_ORDER"

func (o order) String() string {
	b, _ := json.Marshal(o) // strings and numbers
	return string(b)
}

func parseOrder(env string) (order, error) {
	var o order
	if err := json.Unmarshal([]byte(env), &o); err != nil {
		return o, fmt.Errorf("%s: %w", orderVar, err)
	}
	return o, nil
}

// token opens the journal that the order names.
func (o order) token() (*journal.Token, error) {
	j, err := journal.Open(o.Journal)
	if err != nil {
		return nil, err
	}
	return j.Token(o.Token)
}

// run is one supervised terraform: its folder has its output, documents in the token's journal its state.
type run struct {
	token  *journal.Token
	number int
}

// The documents of a run.
const (
	docProcess     = "process"     // the supervisor, written before it takes the lock and checks the fence
	docChild       = "child"       // terraform itself
	docInterrupted = "interrupted" // written before the only interrupt that it ever gets
	docExit        = "exit"        // it has ended, or was refused
	docSettled     = "settled"     // what is known of its creations, worked out by the first that comes after it
)

// supervisorRecord is who supervises a run, and for whom.
type supervisorRecord struct {
	process
	// Turn is the number of the undo that runs it; zero for a forward.
	Turn int `json:"turn,omitempty"`
	// What is what it does; empty in old records.
	What string `json:"what,omitempty"`
}

type exit struct {
	Code int `json:"code"`
	// Refused says why terraform was not started.
	Refused string `json:"refused,omitempty"`
}

func (r run) doc(name string) string { return fmt.Sprintf("run-%03d.%s", r.number, name) }
func (r run) dir() string            { return filepath.Join(runsDir(r.token), fmt.Sprintf("%03d", r.number)) }

// A supervised terraform writes its output to these files of its folder.
func stdoutOf(dir string) string { return filepath.Join(dir, "stdout") }
func stderrOf(dir string) string { return filepath.Join(dir, "stderr") }

func runsDir(t *journal.Token) string { return filepath.Join(t.Dir(), "runs") }

// lockFile is held by every supervised run of a token from before terraform starts until it has ended.
func lockFile(t *journal.Token) string { return filepath.Join(t.Dir(), "terraform.lock") }

// newRun takes the next number.
func newRun(t *journal.Token) (run, error) {
	if err := t.Make(); err != nil {
		return run{}, err
	}
	if err := os.MkdirAll(runsDir(t), 0o700); err != nil {
		return run{}, err
	}
	all, err := listRuns(t)
	if err != nil {
		return run{}, err
	}
	for n := len(all) + 1; ; n++ {
		r := run{t, n}
		if err := os.Mkdir(r.dir(), 0o700); err == nil || !os.IsExist(err) {
			return r, err
		}
	}
}

// listRuns lists a token's runs in the order of their numbers.
func listRuns(t *journal.Token) ([]run, error) {
	es, err := os.ReadDir(runsDir(t))
	if os.IsNotExist(err) {
		return nil, nil
	}
	var all []run
	for _, e := range es {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "%d", &n); err == nil {
			all = append(all, run{t, n})
		}
	}
	return all, err
}

// turnDoc is the document that begins the nth undo of a token, and fences every earlier one.
func turnDoc(n int) string { return fmt.Sprintf("undo-%03d", n) }

// checkFence is Fenced if a run may not start.
func (o order) checkFence(t *journal.Token) error {
	if o.Turn == 0 {
		return t.CheckOpen()
	}
	var v json.RawMessage
	for _, doc := range []string{journal.Outcome, turnDoc(o.Turn + 1)} {
		switch found, err := t.Read(doc, &v); {
		case err != nil:
			return err
		case found:
			return activities.Errorf(activities.Fenced, "another undo of token %s has taken over", o.Token)
		}
	}
	return nil
}
