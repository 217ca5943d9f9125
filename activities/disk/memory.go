package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// QEMU writes the memory and the devices of a machine into the image that a step names, as part of a
// snapshot, and takes one of the same name in every other image that the machine writes: all of one
// moment. It puts all of that back into a machine that runs, of the same hardware.

// drive is an image that a machine writes.
type drive struct {
	node, driver, path string
	snapshots          []string
}

// reachMachine finds the machine that has a disk open, to keep its memory or put it back. A guest
// that was frozen meanwhile would be frozen again whenever it is put back.
func (c *call) reachMachine(ctx context.Context, path string) (*running, error) {
	r, err := c.findMachine(ctx, path)
	if err != nil {
		return nil, err
	}
	if r != nil {
		r.memory, r.freezing = true, nil
		return r, nil
	}
	kind := activities.Refused
	begun, err := c.token.Has(journal.Record)
	if begun || c.Op == isolated.Undo {
		kind = activities.ActionFailed // somebody may start it again
	}
	return nil, errors.Join(err, activities.Errorf(kind,
		"memory: no machine of disk.machines in the worker's config runs with %s; start it, and name its QMP socket there",
		path))
}

// checkMachine refuses a machine that cannot be kept as a whole.
func (c *call) checkMachine(ctx context.Context, r *running) error {
	if err := c.locateDrives(r); err != nil {
		return err
	}
	for _, d := range r.drives {
		if err := c.checkFitAt(d.path); err != nil {
			return err
		}
	}
	bytes, err := r.memoryBytes(ctx)
	if err != nil {
		return err
	}
	return checkRoom(r.image, bytes)
}

// locateDrives finds the images that the machine writes, all of which steps must be allowed to use.
func (c *call) locateDrives(r *running) error {
	for n, d := range r.drives {
		if d.driver != "qcow2" {
			return activities.Errorf(activities.Refused,
				"memory: the machine %s writes %s too, which is %s and has no snapshots; give it to the machine as qcow2 "+
					"(%s convert -O qcow2 %s NEW; variables of UEFI: -drive if=pflash,format=qcow2,file=NEW)",
				r.name, d.path, d.driver, program, d.path)
		}
		path, err := c.locateThere(d.path)
		if err != nil {
			return fmt.Errorf("memory: the machine %s writes another disk too: %w", r.name, err)
		}
		r.drives[n].path = path
	}
	return nil
}

// checkSameDrives refuses a machine that does not write the disks that it wrote when a step began.
func (c *call) checkSameDrives(r *running, rec record) error {
	if err := c.locateDrives(r); err != nil {
		return err
	}
	if others := r.others(); !slices.Equal(others, rec.Others) {
		return activities.Errorf(activities.ActionFailed,
			"memory: besides %s, the machine %s writes %s, and when the step began, it wrote %s; start it as it was then",
			r.path, r.name, listed(others), listed(rec.Others))
	}
	return nil
}

func (c *call) checkFitAt(path string) error {
	i, err := openImage(path)
	if err != nil {
		return err
	}
	defer i.close()
	return c.checkFit(i, true)
}

// others are the disks that the machine writes besides the one that a step names.
func (r *running) others() (paths []string) {
	for _, d := range r.drives {
		if d.node != r.node {
			paths = append(paths, d.path)
		}
	}
	slices.Sort(paths)
	return paths
}

// memoryBytes is how much memory the machine has.
func (r *running) memoryBytes(ctx context.Context) (int64, error) {
	var size struct {
		Base    int64 `json:"base-memory"`
		Plugged int64 `json:"plugged-memory"`
	}
	err := r.ask(ctx, "query-memory-size-summary", &size)
	return size.Base + size.Plugged, err
}

// runs says whether the guest runs: it does not in a machine that is paused.
func (r *running) runs(ctx context.Context) (bool, error) {
	var status struct {
		Running bool `json:"running"`
	}
	err := r.ask(ctx, "query-status", &status)
	return status.Running, err
}

func (r *running) ask(ctx context.Context, question string, answer any) error {
	if err := r.monitor.call(ctx, oneAnswer, question, nil, answer); err != nil {
		return fmt.Errorf("machine %s: %w", r.name, err)
	}
	return nil
}

// jobID is the id of each job that a call has a machine do. The monitor serves one call at a time.
const jobID = "unwind"

// jobError is why QEMU did not do a job.
type jobError struct{ machine, command, why string }

func (e *jobError) Error() string {
	return fmt.Sprintf("machine %s: %s: %s", e.machine, e.command, e.why)
}

// job has the machine do a job, and waits for its end.
func (r *running) job(ctx context.Context, command string, args map[string]any) error {
	args["job-id"] = jobID
	err := r.monitor.call(ctx, oneWrite, command, args, nil)
	if refused, is := errors.AsType[*refusal](err); is {
		return &jobError{r.name, command, refused.why}
	}
	if err != nil { // it has ended, or does not answer: QEMU may yet do it
		return fmt.Errorf("machine %s: %w", r.name, err)
	}
	found, why, err := r.awaitJob(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("machine %s: %s: %w", r.name, command, err)
	case !found: // nobody knows how it has ended
		return fmt.Errorf("machine %s: %s: another program has dismissed the job %s", r.name, command, jobID)
	case why != "":
		return &jobError{r.name, command, why}
	}
	return nil
}

// endJobs waits for the job of a call that was killed.
func (r *running) endJobs(ctx context.Context) error {
	_, _, err := r.awaitJob(ctx)
	return err
}

// awaitJob waits for the end of the job of a call, if there is one, and says why it has failed.
func (r *running) awaitJob(ctx context.Context) (found bool, why string, err error) {
	for giveUp := time.Now().Add(oneWrite); ; {
		var jobs []struct {
			ID     string `json:"id"`
			Status string `json:"status"`
			Error  string `json:"error"`
		}
		if err := r.monitor.call(ctx, oneWrite, "query-jobs", nil, &jobs); err != nil {
			return false, "", err
		}
		isOver := true
		for _, j := range jobs {
			if j.ID != jobID {
				continue
			}
			if isOver = j.Status == "concluded"; isOver {
				return true, j.Error, r.monitor.call(ctx, oneAnswer, "job-dismiss", map[string]any{"id": jobID}, nil)
			}
		}
		if isOver {
			return false, "", nil
		}
		if time.Now().After(giveUp) {
			return false, "", fmt.Errorf("its job %s takes more than %v", jobID, oneWrite)
		}
		select {
		case <-ctx.Done():
			return false, "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// save has the machine take a snapshot with its memory, unless all of it is there.
func (r *running) save(ctx context.Context, name string) error {
	have, err := r.having(ctx, name)
	if err != nil || len(have) == len(r.drives) {
		return errors.Join(err, r.reread())
	}
	if err := r.dropHalf(ctx, name, have); err != nil {
		return err
	}
	nodes := make([]string, len(r.drives))
	for n, d := range r.drives {
		nodes[n] = d.node
	}
	err = r.job(ctx, "snapshot-save", map[string]any{"tag": name, "vmstate": r.node, "devices": nodes})
	if failed, is := errors.AsType[*jobError](err); is {
		err = activities.Errorf(activities.ActionDenied,
			"%v; leave out memory, or give the machine devices that QEMU can keep (such as virtio-blk in place of nvme)", failed)
	}
	return errors.Join(err, r.reread())
}

// dropHalf drops a snapshot of the nodes that have it.
func (r *running) dropHalf(ctx context.Context, name string, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	return r.job(ctx, "snapshot-delete", map[string]any{"tag": name, "devices": nodes})
}

// having are the nodes of the drives that have a snapshot.
func (r *running) having(ctx context.Context, name string) (nodes []string, err error) {
	paths := map[string]string{}
	for _, d := range r.drives {
		paths[d.node] = d.path
	}
	if _, err := r.readDrives(ctx); err != nil {
		return nil, err
	}
	for n, d := range r.drives {
		r.drives[n].path = paths[d.node]
		if slices.Contains(d.snapshots, name) {
			nodes = append(nodes, d.node)
		}
	}
	return nodes, nil
}

// load puts a snapshot and its memory back into a machine that is paused, and looks whether its disks
// hold what that has.
func (r *running) load(ctx context.Context, name string) error {
	nodes := make([]string, len(r.drives))
	for n, d := range r.drives {
		nodes[n] = d.node
	}
	err := r.job(ctx, "snapshot-load", map[string]any{"tag": name, "vmstate": r.node, "devices": nodes})
	if failed, is := errors.AsType[*jobError](err); is {
		return activities.Errorf(activities.ActionDenied,
			"%v; the machine is paused. Only a machine of the same type, memory and devices can go on from there", failed)
	}
	if err != nil {
		return err
	}
	is, err := r.hold(ctx, name)
	if err == nil && !is {
		err = activities.Errorf(activities.ActionFailed,
			"the disks of the machine %s do not hold what snapshot %s has, though QEMU has put it back", r.name, name)
	}
	return err
}

// hold says whether the disks of a machine that is paused hold what a snapshot has.
func (r *running) hold(ctx context.Context, name string) (bool, error) {
	for _, d := range r.drives {
		if err := r.flushNode(ctx, d.node); err != nil {
			return false, err
		}
		i, err := openImage(d.path)
		if err != nil {
			return false, err
		}
		wanted, found, err := i.view(name)
		now, nowErr := i.Now()
		i.close()
		if err := errors.Join(err, nowErr); err != nil || !found || !now.Equal(wanted) {
			return false, explain(d.path, err)
		}
	}
	return true, r.reread()
}

// describeKeepMachine is what keeping a machine that can be kept does.
func (c *call) describeKeepMachine(ctx context.Context, r *running) (change activities.Change, err error) {
	if err := c.checkMachine(ctx, r); err != nil {
		return change, err
	}
	bytes, err := r.memoryBytes(ctx)
	change = describeKeep(r.path)
	change.Summary += ", and the memory of the machine " + r.name
	change.Facts = []string{fmt.Sprintf("the machine stands still while its memory is written: at most %s",
		activities.CountOf(bytes, "byte"))}
	for _, other := range r.others() {
		change.Facts = append(change.Facts, "it writes "+other+" too, which is kept with it")
		change.Keys = append(change.Keys, keyPrefix+other)
	}
	others := strings.Join(r.others(), "\n")
	change.Digest = activities.DigestOf([]byte(keepName), []byte(r.path), []byte("memory"), []byte(others))
	return change, err
}
