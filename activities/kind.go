package activities

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
)

// Kind is a kind of world that a worker's config can open. A world exports one as Kind, and
// worker/host lists it: whatever else knows of the world follows from that.
type Kind struct {
	// Sample are settings with which the world opens to look only, whatever the machine has: for the
	// Specs of its actions.
	Sample Settings
	// Attend serves and does not return in a process that the world has started from the worker's own
	// program. Defaults to none.
	Attend func()
}

// Name is the name of the world.
func (k Kind) Name() string { return k.Sample.World() }

// Settings are the section of a worker's config that opens a world: a pointer to a struct whose
// fields have yaml tags, and comments that say what each does, and its default.
type Settings interface {
	// World is the name of the world, and of the section: the part of the names of its actions before
	// the first dot.
	World() string
	// Check calls bad for each field that cannot be meant, by its name below the section, and opens
	// nothing. Its error is what else is wrong, with the names of the fields.
	Check(o Opening, bad Bad) error
	// Open opens the world. The settings were checked.
	Open(o Opening) (World, error)
}

// OwnSecret is the name of a secret (in the config's secrets) that the worker itself uses: no task
// can have it.
type OwnSecret string

// ListOwnSecrets lists those that the fields of a config name, wherever they are.
func ListOwnSecrets(config any) []string { return listOwnSecrets(reflect.ValueOf(config)) }

func listOwnSecrets(v reflect.Value) (names []string) {
	switch {
	case v.Type() == reflect.TypeFor[OwnSecret]():
		if name := v.String(); name != "" {
			names = append(names, name)
		}
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
		if !v.IsNil() {
			names = listOwnSecrets(v.Elem())
		}
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			names = append(names, listOwnSecrets(field)...)
		}
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		for i := range v.Len() {
			names = append(names, listOwnSecrets(v.Index(i))...)
		}
	case v.Kind() == reflect.Map:
		for each := v.MapRange(); each.Next(); {
			names = append(names, slices.Concat(listOwnSecrets(each.Key()), listOwnSecrets(each.Value()))...)
		}
	}
	return names
}

// Bad says what is wrong with a field of a worker's config.
type Bad func(field, format string, args ...any)

// Opening is what a worker offers a world that it opens.
type Opening struct {
	// State is the worker's state folder. A world keeps to a folder of its own in it.
	State string
	// Secrets are those of the worker's config.
	Secrets WorkerSecrets
	// Hidden are paths that what a step starts must neither read nor change.
	Hidden []string
	// LookOnly opens the world for its Specs and for Preflight only: it makes nothing.
	LookOnly bool
}

// WorkerSecrets are the secrets of a worker's config, for the worker itself.
type WorkerSecrets interface {
	// Has reports whether the config has a secret of this name.
	Has(name string) bool
	// Read returns the value that one of the worker's own has now.
	Read(name OwnSecret) (string, error)
	// ReadShared returns the value that one has now which tasks may have as well.
	ReadShared(name string) (string, error)
	// IsOwn reports whether the worker itself uses it, by this name or by another.
	IsOwn(name string) bool
	// IsOwnVariable reports whether a variable of the environment holds one that the worker itself
	// uses.
	IsOwnVariable(variable string) bool
}

// CheckRoots reports the folders among the field roots in which no world can work.
func CheckRoots(roots []string, bad Bad) {
	if len(roots) == 0 {
		bad("roots", "name at least one folder")
	}
	for _, r := range roots {
		if info, err := os.Stat(r); !filepath.IsAbs(r) || err != nil || !info.IsDir() {
			bad("roots", "%q must be the absolute path of a folder that is there", r)
		}
	}
}

var configName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// CheckName refuses what cannot be the name of a database or of a server in a worker's config.
func CheckName(name string) error {
	if !configName.MatchString(name) {
		return fmt.Errorf("%q must be a name of letters, digits, dashes and underscores, at most 63", name)
	}
	return nil
}
