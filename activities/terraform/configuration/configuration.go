// Package configuration holds configurations as data, to apply them again elsewhere and later.
package configuration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// maxBundle bounds the files of one configuration, in bytes.
const maxBundle = 32 << 20

// Bundle is a configuration with its variables: all that terraform needs besides the state and the
// providers.
type Bundle struct {
	// Dir is the folder that it was taken from.
	Dir string `json:"dir"`
	// Files are its files by their path in Dir, including the providers' lock file.
	Files map[string]BundleFile `json:"files"`
	// Vars are values of variables, as a tfvars document in JSON; they override all files.
	Vars json.RawMessage `json:"vars,omitempty"`
	// Backend is the partial configuration of the backend.
	Backend map[string]string `json:"backend,omitempty"`
}

type BundleFile struct {
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"`
}

// Names of files in a configuration's folder.
const (
	lockName  = ".terraform.lock.hcl"
	StateName = "terraform.tfstate"
	// Variables in *.auto.tfvars files are loaded by every command, in the order of the files' names.
	varsName    = "zzzz_unwind.auto.tfvars.json"
	varFileName = "zzz_unwind_%02d.auto.tfvars"
	// pluginsName is a folder from which terraform would take providers: whoever may write a
	// configuration could bring programs.
	pluginsName = "terraform.d"
	// OverrideName puts a local backend's state where the folder keeps it.
	OverrideName = "zzzz_unwind_override.tf.json"
)

// Read reads the configuration in dir, which is in an allowed folder.
func Read(dir string, vars map[string]any, varFiles []string, backend map[string]string) (Bundle, error) {
	b := Bundle{Dir: dir, Files: map[string]BundleFile{}, Backend: backend}
	if err := b.readFiles(dir); err != nil {
		return b, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return b, err
	}
	defer root.Close()
	for i, name := range varFiles {
		content, err := root.ReadFile(name)
		if err != nil {
			return b, activities.Errorf(activities.Refused, "var_files: %v; name files below dir", err)
		}
		as := fmt.Sprintf(varFileName, i)
		if strings.HasSuffix(name, ".json") {
			as += ".json"
		}
		b.Files[as] = BundleFile{content, 0o600}
	}
	if len(vars) > 0 {
		if b.Vars, err = json.Marshal(vars); err != nil {
			return b, activities.Errorf(activities.Refused, "vars: %v", err)
		}
	}
	return b, nil
}

// readFiles reads the files in dir, except states, what terraform init put there, and git's own.
func (b *Bundle) readFiles(dir string) error {
	total := int64(0)
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && isLeft(dir, path):
			return fs.SkipDir
		case d.IsDir() || notConfiguration(d.Name()):
			return nil
		}
		info, err := os.Stat(path) // follow links
		if err != nil {
			return activities.Errorf(activities.Refused, "dir: %v", err)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		if total += info.Size(); total > maxBundle {
			return activities.Errorf(activities.Refused,
				"dir: %s holds more than %d MB; keep only the configuration in its folder", dir, maxBundle>>20)
		}
		content, err := os.ReadFile(path) //nolint:gosec // links are followed: configurations may share files
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		b.Files[rel] = BundleFile{content, info.Mode().Perm()}
		return err
	})
}

// isLeft says that a folder is no part of the configuration in dir.
func isLeft(dir, path string) bool {
	name := filepath.Base(path)
	return name == ".terraform" || name == ".git" || name == "terraform.tfstate.d" ||
		strings.HasPrefix(name, stagePrefix) || path == filepath.Join(dir, pluginsName)
}

// CheckDefaultWorkspace refuses a folder with another workspace selected.
func CheckDefaultWorkspace(dir string) error {
	selected, err := os.ReadFile(filepath.Join(dir, ".terraform", "environment"))
	if name := strings.TrimSpace(string(selected)); err == nil && name != "" && name != "default" {
		return activities.Errorf(activities.Refused,
			"dir: %s has the workspace %q selected; only the default one is supported: "+
				"run terraform workspace select default, or keep that configuration in a folder of its own", dir, name)
	}
	return nil
}

func notConfiguration(name string) bool {
	return strings.HasPrefix(name, StateName) || strings.HasPrefix(name, ".terraform.tfstate") ||
		name == "errored.tfstate" || name == "crash.log"
}

// Digest covers everything in the bundle except where it was.
func (b Bundle) Digest() activities.Digest {
	names := make([]string, 0, len(b.Files))
	for n := range b.Files {
		names = append(names, n)
	}
	sort.Strings(names)
	parts := [][]byte{b.Vars}
	for _, n := range names {
		parts = append(parts, []byte(n), b.Files[n].Content)
	}
	backend, _ := json.Marshal(b.Backend) // a map of strings; its keys come out sorted
	return activities.DigestOf(append(parts, backend)...)
}

// WriteTo writes the bundle into an empty folder of the worker's.
func (b Bundle) WriteTo(to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for name, f := range b.Files {
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Content, f.Mode.Perm()|0o600); err != nil {
			return err
		}
	}
	if len(b.Vars) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(to, varsName), b.Vars, 0o600)
}

// LockLike makes the configuration use the providers of a lock file.
func (b *Bundle) LockLike(lock BundleFile) {
	if len(lock.Content) > 0 {
		b.Files = maps.Clone(b.Files)
		b.Files[lockName] = lock
	}
}

// ReadLock reads the lock file that init wrote; empty if there are no providers to lock.
func ReadLock(dir string) BundleFile {
	content, err := os.ReadFile(filepath.Join(dir, lockName))
	if err != nil {
		return BundleFile{}
	}
	return BundleFile{content, 0o600}
}

// RootModuleTexts are the contents of the root module's files.
func (b Bundle) RootModuleTexts() []string {
	var texts []string
	for name, f := range b.Files {
		if !strings.Contains(name, "/") && (strings.HasSuffix(name, ".tf") || strings.HasSuffix(name, ".tf.json")) {
			texts = append(texts, string(f.Content))
		}
	}
	return texts
}
