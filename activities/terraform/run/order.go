// Package run runs terraform under a supervisor that outlives the worker, and tells how each run
// has ended.
package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/confine"
	"github.com/seed-62bf7108/unwind/internal/process"
)

// Order is passed by a worker to the front that terraform-exec starts, in its environment.
type Order struct {
	// Terraform is the real program.
	Terraform string `json:"terraform"`
	// Version is its version, if the worker knows it already.
	Version string `json:"version,omitempty"`
	// Out is the folder for the output of a supervised terraform; empty: terraform runs unsupervised.
	Out string `json:"out,omitempty"`
	// Run is the number of a run that may change something, with a lock, a fence and documents. Zero:
	// it only reads.
	Run int `json:"run,omitempty"`
	// Journal and Token identify the owner of the run.
	Journal string `json:"journal,omitempty"`
	Token   string `json:"token,omitempty"`
	// Turn is the number of the undo that runs it; zero for a forward.
	Turn int `json:"turn,omitempty"`
	// Limits confine terraform and what it starts.
	Limits confine.Limits `json:"limits"`
	// Backend are settings of the backend that the configuration omits, for init. They may hold
	// secrets, and everybody can read the arguments of a process.
	Backend map[string]string `json:"backend,omitempty"`
	// What is its operation: OpApply, "state push", "import" ...
	What string `json:"what,omitempty"`
}

// OpApply is a run that applies a plan.
const OpApply = "apply"

// OrderVar is the environment variable with the order.
const OrderVar = "UNWIND_TERRAFORM_ORDER"

// String encodes the order for the environment.
func (o Order) String() string {
	b, _ := json.Marshal(o) // strings and numbers
	return string(b)
}

// childEnv is the environment of terraform: this process's own without what only the front reads,
// with the backend's settings.
func (o Order) childEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, OrderVar+"=") })
	var args []string
	for _, name := range slices.Sorted(maps.Keys(o.Backend)) {
		args = append(args, "'-backend-config="+strings.ReplaceAll(name+"="+o.Backend[name], "'", `'"'"'`)+"'")
	}
	if len(args) > 0 {
		env = append(env, "TF_CLI_ARGS_init="+strings.Join(args, " "))
	}
	return env
}

func parseOrder(env string) (Order, error) {
	var o Order
	if err := json.Unmarshal([]byte(env), &o); err != nil {
		return o, fmt.Errorf("%s: %w", OrderVar, err)
	}
	return o, nil
}

// token opens the journal that the order names.
func (o Order) token() (*journal.Token, error) {
	j, err := journal.Open(o.Journal)
	if err != nil {
		return nil, err
	}
	return j.Token(o.Token)
}

// Run is one supervised terraform: its folder has its output, documents in the token's journal its
// state.
type Run struct {
	Token  *journal.Token
	Number int
}

// The documents of a run.
const (
	DocProcess     = "process"     // the supervisor, written before it takes the lock and checks the fence
	docChild       = "child"       // terraform itself
	DocInterrupted = "interrupted" // written before the only interrupt that it ever gets
	DocExit        = "exit"        // it has ended, or was refused
	DocSettled     = "settled"     // what is known of its creations, worked out by the first that comes after it
)

// Supervisor is who supervises a run, and for whom.
type Supervisor struct {
	process.Identity
	// Turn is the number of the undo that runs it; zero for a forward.
	Turn int `json:"turn,omitempty"`
	// What is what it does.
	What string `json:"what"`
}

// Exit is how a run has ended.
type Exit struct {
	Code int `json:"code"`
	// Refused says why terraform was not started.
	Refused string `json:"refused,omitempty"`
}

// Doc names a document of the run.
func (r Run) Doc(name string) string { return fmt.Sprintf("run-%03d.%s", r.Number, name) }

// Folder is the folder with the output of the run.
func (r Run) Folder() string { return filepath.Join(Folder(r.Token), fmt.Sprintf("%03d", r.Number)) }

// Stdout is the file in the folder of a supervised terraform for its standard output.
func Stdout(dir string) string { return filepath.Join(dir, "stdout") }

// Stderr is the file for its standard error.
func Stderr(dir string) string { return filepath.Join(dir, "stderr") }

// Folder is the folder of the runs of a token.
func Folder(t *journal.Token) string { return filepath.Join(t.Dir(), "runs") }

// lockFile is held by every supervised run of a token from before terraform starts until it has
// ended.
func lockFile(t *journal.Token) string { return filepath.Join(t.Dir(), "terraform.lock") }

// Begin takes the next number.
func Begin(t *journal.Token) (Run, error) {
	if err := t.Make(); err != nil {
		return Run{}, err
	}
	if err := os.MkdirAll(Folder(t), 0o700); err != nil {
		return Run{}, err
	}
	all, err := List(t)
	if err != nil {
		return Run{}, err
	}
	for n := len(all) + 1; ; n++ {
		r := Run{t, n}
		if err := os.Mkdir(r.Folder(), 0o700); err == nil || !os.IsExist(err) {
			return r, err
		}
	}
}

// List lists a token's runs in the order of their numbers.
func List(t *journal.Token) ([]Run, error) {
	es, err := os.ReadDir(Folder(t))
	if os.IsNotExist(err) {
		return nil, nil
	}
	var all []Run
	for _, e := range es {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "%d", &n); err == nil {
			all = append(all, Run{t, n})
		}
	}
	return all, err
}

// turnDoc is the document that begins the nth undo of a token, and fences every earlier one.
func turnDoc(n int) string { return fmt.Sprintf("undo-%03d", n) }

// CheckFence is Fenced if a run of this turn may not start.
func CheckFence(t *journal.Token, turn int) error {
	if turn == 0 {
		return t.CheckOpen()
	}
	var v json.RawMessage
	for _, doc := range []string{journal.Outcome, turnDoc(turn + 1)} {
		switch found, err := t.Read(doc, &v); {
		case err != nil:
			return err
		case found:
			return activities.Errorf(activities.Fenced, "another undo of token %s has taken over", filepath.Base(t.Dir()))
		}
	}
	return nil
}
