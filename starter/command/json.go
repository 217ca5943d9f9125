package command

import (
	"context"
	"encoding/json"
	"runtime/debug"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// What -o json prints is documented in docs/json.md, which a test compares with these types.

// startedJSON is the output of run, rollback, redo and recover.
type startedJSON struct {
	ID    string `json:"id"`
	RunID string `json:"runId"`
	Type  string `json:"type"`
	Queue string `json:"queue"`
	// Link is the page in the Temporal UI.
	Link string `json:"link,omitempty"`
	// Waiting says that no worker has taken it yet.
	Waiting bool `json:"waiting,omitempty"`
	// AwaitedHosts are those whose workers have yet to take what they were given, as far as that shows
	// when the command returns.
	AwaitedHosts []string `json:"awaitedHosts,omitempty"`
}

// validJSON is the output of validate.
type validJSON struct {
	File  string `json:"file"`
	Name  string `json:"name,omitempty"`
	Steps int    `json:"steps,omitempty"`
	// Problems are what is wrong with the file; Name and Steps are missing then.
	Problems []task.Problem `json:"problems,omitempty"`
	// NotAsked says why nobody could look at paths, programs, containers and secrets.
	NotAsked string `json:"notAsked,omitempty"`
	// Later are the steps that depend on earlier ones, Notes what could not be seen.
	Later []string `json:"later,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.streams.Out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (p *program) printStarted(ctx context.Context, c *tasks.Client, t tasks.Run) error {
	hosts, err := c.AwaitedHosts(ctx, t.ID)
	if err != nil {
		return err
	}
	return p.printJSON(startedJSON{t.ID, t.RunID, t.Type, t.Queue, c.RunLink(t.ID, t.RunID), !c.HasWorker(ctx, t.Queue),
		hosts})
}

// checkOutput refuses JSON together with the view of a task that goes on.
func (f followFlags) checkOutput() error {
	if f.watch && f.output == "json" {
		return usage.Errorf("give --watch or -o json, not both; `starter show ID -o json` prints a task at its end")
	}
	return nil
}

// version is that of the module, or the commit that the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	if v == "" {
		v = "(devel)"
	}
	return v + " " + info.GoVersion
}
