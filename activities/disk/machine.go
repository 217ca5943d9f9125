package disk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// running is a disk that a machine has open.
type running struct {
	*image

	name    string
	monitor *peer
	device  string // by which the monitor knows the disk
	node    string // by which it knows the image
	drives  []drive
	memory  bool // whether its memory is kept with the disk: see memory.go
	// freezing freezes the guest; nil: it is not frozen. reach reports the point at which it is.
	freezing *guest
	reach    func(string)
	// frozen says that it was, while the snapshot was taken, and notes why it was not.
	frozen bool
	notes  []string
}

// Bounds on the answers of a monitor: to a question, and to a command that writes.
const (
	oneAnswer = 10 * time.Second
	oneWrite  = 10 * time.Minute
)

// findMachine finds the machine that has a disk open, among those of the config; nil: none of them.
func (c *call) findMachine(ctx context.Context, path string) (*running, error) {
	for _, name := range slices.Sorted(maps.Keys(c.Machines)) {
		m := c.Machines[name]
		monitor, err := dial(ctx, m.QMP)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
			continue // it is not running
		}
		if err != nil {
			return nil, fmt.Errorf("machine %s: %w", name, err)
		}
		r := &running{name: name, monitor: monitor, reach: c.reach}
		if err = r.findDevice(ctx, path); err == nil && r.device != "" {
			if err = r.endJobs(ctx); err == nil {
				r.image, err = openImage(path)
			}
		}
		if err != nil {
			monitor.close()
			return nil, fmt.Errorf("machine %s: %w", name, err)
		}
		if r.image != nil {
			if m.Agent != "" {
				r.freezing = &guest{name: name, agent: m.Agent, token: c.token}
			}
			return r, nil
		}
		monitor.close()
	}
	return nil, nil
}

// blockDevice is what a monitor says of a drive.
type blockDevice struct {
	Device   string `json:"device"`
	Inserted *struct {
		Node   string `json:"node-name"`
		File   string `json:"file"`
		Driver string `json:"drv"`
		// ReadOnly says that the machine does not write it.
		ReadOnly bool `json:"ro"`
		Image    struct {
			Snapshots []struct {
				Name string `json:"name"`
			} `json:"snapshots"`
		} `json:"image"`
	} `json:"inserted"`
}

// findDevice finds the drive of the machine that is the file at a path, if there is one, and all that
// the machine writes.
func (r *running) findDevice(ctx context.Context, path string) error {
	if err := r.monitor.call(ctx, oneAnswer, "qmp_capabilities", nil, nil); err != nil {
		return err
	}
	all, err := r.readDrives(ctx)
	if err != nil {
		return err
	}
	disk, err := os.Stat(path)
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.Inserted == nil || b.Inserted.Driver != "qcow2" {
			continue
		}
		if file, err := os.Stat(fileOf(b.Inserted.File)); err != nil || !os.SameFile(disk, file) {
			continue
		}
		r.node, r.device = b.Inserted.Node, cmp.Or(b.Device, b.Inserted.Node)
	}
	return nil
}

// readDrives reads which drives the machine has, and notes those that it writes.
func (r *running) readDrives(ctx context.Context) (all []blockDevice, err error) {
	if err := r.monitor.call(ctx, oneAnswer, "query-block", nil, &all); err != nil {
		return nil, err
	}
	r.drives = nil
	for _, b := range all {
		if b.Inserted == nil || b.Inserted.ReadOnly {
			continue
		}
		d := drive{node: b.Inserted.Node, driver: b.Inserted.Driver, path: fileOf(b.Inserted.File)}
		for _, s := range b.Inserted.Image.Snapshots {
			d.snapshots = append(d.snapshots, s.Name)
		}
		r.drives = append(r.drives, d)
	}
	return all, nil
}

// fileOf is the path in the name that QEMU gives an image.
func fileOf(name string) string {
	raw, is := strings.CutPrefix(name, "json:")
	if !is {
		return name
	}
	var options struct {
		File struct {
			Filename string `json:"filename"`
		} `json:"file"`
	}
	_ = json.Unmarshal([]byte(raw), &options) // what is not understood is no path
	return options.File.Filename
}

func (r *running) opened() (*image, bool) { return r.image, true }

func (r *running) close() {
	r.monitor.close()
	r.image.close()
}

// keep has the machine take a snapshot, while its guest is frozen if it can be.
func (r *running) keep(ctx context.Context, name string) error {
	if r.memory {
		return r.save(ctx, name)
	}
	if r.freezing != nil {
		if err := r.freezing.freeze(); err != nil {
			r.notes = append(r.notes,
				fmt.Sprintf("the guest was not frozen, and the checkpoint is as after a loss of power: %v", err))
		}
		r.reach("frozen")
	}
	err := r.snapshot(ctx, "blockdev-snapshot-internal-sync", name)
	if r.freezing != nil {
		var thawErr error
		r.frozen, thawErr = r.freezing.thaw()
		if thawErr != nil {
			r.notes = append(r.notes, thawErr.Error())
		}
	}
	return err
}

func (r *running) drop(ctx context.Context, name string) error {
	return r.snapshot(ctx, "blockdev-snapshot-delete-internal-sync", name)
}

// freeLeaks does nothing: a call that is killed does not cut short what QEMU does.
func (*running) freeLeaks(context.Context) error { return nil }

func (r *running) snapshot(ctx context.Context, command, name string) error {
	err := r.monitor.call(ctx, oneWrite, command, map[string]any{"device": r.device, "name": name}, nil)
	if err != nil {
		return fmt.Errorf("machine %s: %w", r.name, err)
	}
	return r.reread()
}

// flush has the machine write what it has not written yet.
func (r *running) flush(ctx context.Context) error {
	if err := r.flushNode(ctx, r.node); err != nil {
		return err
	}
	return r.reread()
}

func (r *running) flushNode(ctx context.Context, node string) error {
	var said string
	err := r.monitor.call(ctx, oneWrite, "human-monitor-command",
		map[string]any{"command-line": fmt.Sprintf("qemu-io %s flush", node)}, &said)
	if said = strings.TrimSpace(said); err == nil && said != "" {
		err = errors.New(said)
	}
	if err != nil {
		err = fmt.Errorf("machine %s: %w", r.name, err)
	}
	return err
}
