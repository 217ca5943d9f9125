package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/image"
)

// ErrUsage says that the arguments are no good.
var ErrUsage = errors.New("usage")

// Command is the bench: it returns the figures, and which of them should be another.
func Command(ctx context.Context, args []string) (figures any, missed []string, err error) {
	o := Options{Log: os.Stdout}
	flags := flag.NewFlagSet("bench crash", flag.ContinueOnError)
	flags.IntVar(&o.Kills, "kills", 200, "how many processes to kill")
	flags.Uint64Var(&o.Seed, "seed", 1, "what all that is random is drawn from")
	flags.DurationVar(&o.Within, "within", 0,
		"when no further task starts (default 20m, and from 223 kills on 5.4s for each)")
	flags.DurationVar(&o.Patience, "patience", 0, "how long a task may take, and once more in peace (default 4m)")
	flags.IntVar(&o.Hosts, "workers", 0, "how many workers (default 3)")
	flags.IntVar(&o.Side, "side", 0, "how many tasks side by side (default 6)")
	flags.BoolVar(&o.Environments, "environments", false, "play environments in the place of tasks")
	flags.BoolVar(&o.Keep, "keep", false, "keep the run's folder")
	flags.Func("task", "play only the task of that `number`; may be given more than once", func(s string) error {
		n, err := strconv.Atoi(s)
		o.Tasks = append(o.Tasks, n)
		return err
	})
	worlds := flags.String("worlds", "", "worlds, with commas between them (default all that the machine has)")
	if err := flags.Parse(args); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if flags.NArg() > 0 || o.Kills < 1 {
		return nil, nil, fmt.Errorf("%w: go run ./bench crash [-kills N] [-seed S] [-within D]", ErrUsage)
	}
	if *worlds != "" {
		o.Worlds = strings.Split(*worlds, ",")
	}
	f, err := Run(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	fmt.Printf("\n%d tasks (%d committed, %d unwound), %d kills at %d of %d points and at random moments, %d frozen, "+
		"%d restarts of the server, %d of the database: lost %d, doubled %d, orphaned %d, blocked %d\n",
		f.Tasks, f.Committed, f.Unwound, f.Kills, f.Points, f.Of, f.Frozen, f.Servers, f.Databases, f.Lost, f.Doubled,
		f.Orphaned, f.Blocked)
	for _, c := range []struct {
		what string
		n    int
	}{{"lost", f.Lost}, {"doubled", f.Doubled}, {"orphaned", f.Orphaned}, {"blocked", f.Blocked}} {
		if c.n > 0 {
			missed = append(missed, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if f.Kills < o.Kills && len(o.Tasks) == 0 {
		missed = append(missed, fmt.Sprintf("%d kills of %d in the time", f.Kills, o.Kills))
	}
	return f, missed, nil
}

// removeImage removes the image that this run's containers were made from, with the names that
// checkpoints of environments have given it.
func (r *run) removeImage() error {
	_, err := r.engine.ImageRemove(context.Background(), r.image, image.RemoveOptions{Force: true})
	return err
}
