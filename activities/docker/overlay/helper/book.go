package helper

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

const bookVersion = 1

// book is the desired state of one container.
type book struct {
	Version   int    `json:"version"`
	Container string `json:"container"`
	// ID tells the tops of this book from those of others.
	ID string `json:"id"`
	// Boot is the boot of the host in which the book was written; what was newest in an earlier one
	// may be lost. Bare are layers that wait for the container to run: those lost, and those made
	// since it was stopped.
	Boot string `json:"boot,omitempty"`
	Bare []int  `json:"bare,omitempty"`
	// Next is the number of the next layer; none is reused.
	Next int `json:"next"`
	// Below maps each layer to the one it was made over; 0 is the container's own root. So layers form
	// a tree.
	Below map[int]int `json:"below,omitempty"`
	// Lower is the newest layer below the upper one. Upper is the one written to, or 0 if the
	// container's own root is visible.
	Lower int `json:"lower,omitempty"`
	Upper int `json:"upper,omitempty"`
	// Marks maps each checkpoint to its newest layer.
	Marks map[string]int `json:"marks,omitempty"`
	// Doors says which upper layer the commands of a checkpoint's step may enter.
	Doors map[string]int `json:"doors,omitempty"`
	// Busy are the checkpoints that were taken while processes of earlier steps ran in the container.
	Busy map[string]bool `json:"busy,omitempty"`
	// Over are the checkpoints whose steps a restore has ended.
	Over map[string]bool `json:"over,omitempty"`
	// Turns are the restores that have been done.
	Turns map[string]bool `json:"turns,omitempty"`
	// Merged are layers that stand for several others.
	Merged []mergedLayer `json:"merged,omitempty"`
	// Doing is a change in progress.
	Doing *topChange `json:"doing,omitempty"`
	// Base is the layer that, with those below it, equals what a commit has written into the
	// container's own root; 0 if there was none, or one is in progress. Landing is what is being
	// written there. Owed says that the last commit could not unmount the layers.
	Base    int        `json:"base,omitempty"`
	Landing *rootWrite `json:"landing,omitempty"`
	Owed    bool       `json:"owed,omitempty"`
	// Since is when layers were last put over the container's own root or written into it, and Wrote
	// the layer that was, with those below it, since there have been layers: see [layer.Root]. Except
	// are paths of these layers that somebody else has changed in the root. They are not written.
	Since  int64    `json:"since,omitempty"`
	Wrote  int      `json:"wrote,omitempty"`
	Except []string `json:"except,omitempty"`
	// Others maps checkpoints to the paths that their steps have changed and somebody else has changed
	// in the root.
	Others map[string][]string `json:"others,omitempty"`
	// Reverses maps each layer that undoes a commit to what Base was before that commit, which looks
	// the same.
	Reverses map[int]int `json:"reverses,omitempty"`

	on page // where it was read from or last written to
}

// topChange is a change of the top. It is recorded before the top is changed, and is over when the
// book has its result. Without an upper layer it unmounts all layers, once the lower ones have been
// written into the container's own root.
type topChange struct {
	Lower int `json:"lower,omitempty"`
	Upper int `json:"upper"`
	// Old is the former top; with Ends its users are ended. Born identifies the start of the container
	// in which the change began.
	Old  *stack.Top `json:"old,omitempty"`
	Ends bool       `json:"ends,omitempty"`
	Born string     `json:"born,omitempty"`
	// Mark is the checkpoint whose step may enter the new top; with Takes it is made, of what is Lower
	// now. Turn is the restore that this is, Keep the name under which the old layers are kept, and
	// Over the checkpoint whose step it ends.
	Mark  string `json:"mark,omitempty"`
	Takes bool   `json:"takes,omitempty"`
	Turn  string `json:"turn,omitempty"`
	Keep  string `json:"keep,omitempty"`
	Over  string `json:"over,omitempty"`
	// Others are what is to be recorded for checkpoint Over.
	Others []string `json:"others,omitempty"`
}

// mergedLayer holds the sum of a layer and all below it, which are kept for the checkpoints between
// them.
type mergedLayer struct {
	Upto int `json:"upto"`
	As   int `json:"as"`
}

// mostLower is how many layers may lie below an upper one before the older ones are merged: each
// lookup of a missing name asks them all. leastLower are the newest of them, which are not merged.
const (
	mostLower  = 64
	leastLower = 16
)

// chain lists a layer and all below it, the oldest first.
func (b *book) chain(n int) []int {
	var up []int
	for ; n != 0; n = b.Below[n] {
		up = append(up, n)
	}
	slices.Reverse(up)
	return up
}

// lowerToMount is the chain of a layer with merged layers in place of those they stand for.
func (b *book) lowerToMount(n int) []int {
	chain := b.chain(n)
	for i, below := range slices.Backward(chain) {
		for _, m := range b.Merged {
			if m.Upto == below {
				return append(b.chain(m.As), chain[i+1:]...)
			}
		}
	}
	return chain
}

// insertReverse puts reverse layer n below all others.
func (b *book) insertReverse(n int) {
	for layer, below := range b.Below {
		if below == 0 {
			b.Below[layer] = n
		}
	}
	for mark, layer := range b.Marks {
		if layer == 0 {
			b.Marks[mark] = n
		}
	}
	if b.Upper != 0 && b.Lower == 0 {
		b.Lower = n
	}
	b.Below[n], b.Reverses[n] = 0, b.Base
	b.Base = 0
}

// history lists a layer and all that led to it, the oldest first, such that two layers show
// different files exactly where their histories differ. It is the chain of the layer, with a
// commitMarker in place of a reverse layer, or of the container's own root, after a commit.
func (b *book) history(n int) []int {
	var up []int
	for reverse := false; ; {
		was, is := b.Reverses[n]
		if n == 0 {
			was = b.Base
		}
		switch {
		case !reverse && was != 0:
			up = append(up, commitMarker(n))
			n = was
		case n == 0:
			slices.Reverse(up)
			return up
		default:
			up = append(up, n)
			n, reverse = b.Below[n], is
		}
	}
}

// commitMarker stands for a commit in a history: what follows it is over layer n, not over what is
// before it. Both look the same, unless somebody else has written to the container's own root.
func commitMarker(n int) int { return -n - 1 }

// layersOf are the layers of a history.
func layersOf(history []int) []int {
	return slices.DeleteFunc(slices.Clone(history), func(n int) bool { return n < 0 })
}

// newestLayer is the topmost layer.
func (b *book) newestLayer() int {
	if b.Upper == 0 {
		return b.Lower
	}
	return b.Upper
}

// dropCheckpoint removes a checkpoint, including one that a change is about to make.
func (b *book) dropCheckpoint(name string) {
	delete(b.Marks, name)
	delete(b.Doors, name)
	delete(b.Busy, name)
	delete(b.Over, name)
	delete(b.Others, name)
	for turn := range b.Turns {
		if strings.HasPrefix(turn, name+" ") {
			delete(b.Turns, turn)
		}
	}
	if c := b.Doing; c != nil {
		c.Takes = c.Takes && c.Mark != name
		if c.Keep == name {
			c.Keep = ""
		}
	}
}

// recordChange applies a finished change to the book.
func (b *book) recordChange(c topChange) {
	if c.Keep != "" {
		b.Marks[c.Keep] = b.newestLayer()
	}
	for mark, upper := range b.Doors {
		if c.Upper != 0 && c.Turn == "" && c.Mark == "" && upper == b.Upper { // the same files, mounted again after a restart
			b.Doors[mark] = c.Upper
		} else { // other processes use it now, or its work is gone
			delete(b.Doors, mark)
		}
	}
	if c.Mark != "" {
		b.Doors[c.Mark] = c.Upper
	}
	if c.Takes {
		b.Marks[c.Mark] = c.Lower
	}
	if c.Turn != "" {
		b.Turns[c.Turn] = true
	}
	if c.Over != "" {
		b.Over[c.Over] = true
		b.addOthers(c.Over, c.Others)
	}
	if c.Upper == 0 {
		b.Except, b.Wrote = nil, 0
	}
	if c.Turn != "" && b.Landing != nil { // a restore cancels what was being written
		b.Landing, b.Since = nil, time.Now().UnixNano()
	}
	b.Owed = b.Owed && !c.Takes && c.Turn == "" && c.Upper != 0
	b.Lower, b.Upper, b.Doing = c.Lower, c.Upper, nil
	now := b.lowerToMount(b.Lower)
	b.Merged = slices.DeleteFunc(b.Merged, func(m mergedLayer) bool { return !slices.Contains(now, m.As) })
}

// addOthers records that somebody else has changed paths that the step of a checkpoint has changed.
func (b *book) addOthers(mark string, paths []string) {
	if len(paths) == 0 {
		return
	}
	all := slices.Concat(b.Others[mark], paths)
	slices.Sort(all)
	b.Others[mark] = slices.Compact(all)
}

// usedLayers are the layers that are needed.
func (b *book) usedLayers() map[int]bool {
	needed := map[int]bool{}
	need := func(n int) {
		for ; n != 0 && !needed[n]; n = b.Below[n] {
			needed[n] = true
		}
	}
	need(b.Lower)
	need(b.Upper)
	need(b.Wrote)
	for _, n := range b.Marks {
		need(n)
	}
	for _, m := range b.Merged {
		need(m.As)
	}
	if b.Doing != nil {
		need(b.Doing.Lower)
		need(b.Doing.Upper)
	}
	if b.Landing != nil {
		need(b.Landing.Upto)
	}
	for more := true; more; { // a checkpoint from before a commit is compared with what that has written
		more = false
		for n := range b.Reverses {
			wrote := b.Base
			if over := b.Below[n]; over != 0 {
				wrote = b.Reverses[over]
			}
			if needed[n] && wrote != 0 && !needed[wrote] {
				need(wrote)
				more = true
			}
		}
	}
	return needed
}

// readBook reads the book in dir; a new container gets an empty one.
func readBook(dir, container string) (*book, error) { return new(bookCache).readBook(dir, container) }

func (m *bookCache) readBook(dir, container string) (*book, error) {
	on, line, err := newestPage(dir)
	if known := m.recall(container, on); err == nil && known != nil {
		return known, nil
	}
	b := &book{Version: bookVersion, Container: container, ID: strings.ToLower(rand.Text()[:8]), Next: 1}
	if err == nil && on.Number > 0 {
		if err = json.Unmarshal(line, &on); err == nil {
			err = json.Unmarshal(on.Book, b)
		}
	}
	if err != nil {
		return nil, newFailure(Damaged, "the book of container %s: %v", container, err)
	}
	on.Book = nil
	b.on = on
	if b.Version != bookVersion || b.Container != container {
		return nil, newFailure(Damaged, "the book of container %s has format %d and is of %s", container, b.Version,
			b.Container)
	}
	if b.Boot == "" {
		b.Boot = bootID()
	}
	if b.Marks == nil {
		b.Marks = map[string]int{}
	}
	if b.Below == nil {
		b.Below = map[int]int{}
	}
	if b.Doors == nil {
		b.Doors = map[string]int{}
	}
	if b.Reverses == nil {
		b.Reverses = map[int]int{}
	}
	if b.Others == nil {
		b.Others = map[string][]string{}
	}
	for _, set := range []*map[string]bool{&b.Busy, &b.Over, &b.Turns} {
		if *set == nil {
			*set = map[string]bool{}
		}
	}
	return b, nil
}

// hasBook reports whether there is a book in dir.
func hasBook(dir string) bool {
	return slices.ContainsFunc(pageNames[:], func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// HasLayers reports whether the book in dir has layers or checkpoints of a container. It takes no
// lock: both may change.
func HasLayers(dir, container string) (bool, error) {
	dir = filepath.Join(dir, container)
	if !hasBook(dir) {
		return false, nil
	}
	b, err := readBook(dir, container)
	return err != nil || b.hasLayers(), err
}

// Covers reports whether the book in dir has layers over a container that hold something which the
// container's own root has not. It takes no lock, as HasLayers does not.
func Covers(dir, container string) (bool, error) {
	dir = filepath.Join(dir, container)
	if !hasBook(dir) {
		return false, nil
	}
	b, err := readBook(dir, container)
	if err != nil || b.Doing != nil || b.Landing != nil {
		return true, err
	}
	layers := b.chain(b.Upper)
	for _, n := range layers[slices.Index(layers, b.Base)+1:] { // all, where none has been written into the root
		held, err := os.ReadDir(layer.Content(dir, n))
		if err != nil || len(held) > 0 {
			return true, err
		}
	}
	return false, nil
}

// hasLayers reports whether there are layers of the container, or checkpoints of it.
func (b *book) hasLayers() bool {
	return b.Upper != 0 || len(b.Marks) > 0 || b.Doing != nil || b.Landing != nil
}

// write puts the whole book on the disk. It survives a power loss, unless told is set and the
// previous book already implies the change.
func (b *book) write(dir string, told bool) error {
	raw, err := json.Marshal(b)
	if err != nil {
		return err
	}
	b.on, err = b.on.writeNext(dir, raw, told)
	return err
}

// trash prefixes the names of what is being removed.
const trash = ".trash-"

// discardLayers forgets unreferenced layers and moves them out of the way, to the paths that it
// returns.
func (b *book) discardLayers(dir string) (gone []string, err error) {
	names, err := os.ReadDir(dir)
	errs := []error{err}
	used := b.usedLayers()
	for n := range b.Below {
		if !used[n] {
			delete(b.Below, n)
		}
	}
	for n, was := range b.Reverses {
		switch {
		case !used[n]:
			delete(b.Reverses, n)
		case !used[was]:
			b.Reverses[n] = 0
		}
	}
	if !used[b.Base] {
		b.Base = 0
	}
	for _, name := range names {
		n, notLayer := strconv.Atoi(name.Name())
		switch {
		case strings.HasPrefix(name.Name(), trash): // of a former helper
			gone = append(gone, filepath.Join(dir, name.Name()))
		case notLayer == nil && !used[n]:
			for _, move := range [][2]string{ // the door first: it is found by its layer
				{doorOf(dir, n), filepath.Join(dir, trash+"door-"+name.Name())},
				{filepath.Join(dir, name.Name()), filepath.Join(dir, trash+name.Name())},
			} {
				if err := os.Rename(move[0], move[1]); !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
				gone = append(gone, move[1])
			}
		}
	}
	return gone, errors.Join(errs...)
}

// sweepLayers removes unreferenced layers: in the background, or at once on a full disk, where the
// spare needs their space.
func (o *lockedBook) sweepLayers() error {
	gone, err := o.discardLayers(o.dir)
	remove := func() {
		for _, away := range gone {
			_ = layer.RemoveAll(away) // what is left is found by the next sweep
		}
	}
	switch {
	case len(gone) == 0:
	case o.cramped:
		remove()
		stack.CloseFormerTops() // free the disk space
	default:
		go func() {
			remove()
			stack.CloseFormerTopsSoon(o.dir)
		}()
	}
	return err
}
