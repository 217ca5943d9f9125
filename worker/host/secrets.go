package host

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/notices"
)

// taskSecrets are the secrets of a worker as its tasks get them: all but its own, each for the
// actions that the config says.
type taskSecrets struct{ config Config }

// Secret implements activities.SecretSource.
func (t taskSecrets) Secret(name, action string) (string, error) {
	c := t.config
	if _, known := c.Secrets[name]; !known || slices.Contains(c.ownSecrets(), name) {
		return "", fmt.Errorf("this worker's config allows tasks %s", listNames(c.TaskSecrets()))
	}
	if only, limited := c.SecretActions[name]; limited &&
		!slices.ContainsFunc(only, func(pattern string) bool { return matchesAction(pattern, action) }) {
		return "", fmt.Errorf("this worker's config allows it to %s, and not to %s", strings.Join(only, ", "), action)
	}
	return secrets(c.Secrets).read(name)
}

// Values implements activities.SecretSource. One that cannot be read now is reported to whoever
// uses it.
func (t taskSecrets) Values() []string {
	var values []string
	for name := range t.config.Secrets {
		if value, err := secrets(t.config.Secrets).read(name); err == nil {
			values = append(values, value)
		}
	}
	return values
}

// matchesAction says that an action is the one named, or of the world named: "stripe.*".
func matchesAction(pattern, action string) bool {
	world, all := strings.CutSuffix(pattern, ".*")
	return pattern == action || all && activities.WorldOf(action) == world
}

// ownSecrets are the names of those that the worker itself uses: no task can name them.
func (c Config) ownSecrets() []string {
	return activities.ListOwnSecrets(struct {
		Worlds  []activities.Settings
		Notices []notices.Channel
		Policy  activities.OwnSecret
	}{c.Worlds, c.Notices, c.PolicyToken})
}

// TaskSecrets are the names of the secrets that tasks may refer to; not nil, which would mean "not
// known".
func (c Config) TaskSecrets() []string {
	names := append([]string{}, slices.Sorted(maps.Keys(c.Secrets))...)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(c.ownSecrets(), name) })
}

// secrets reads the values of Config.Secrets for the worker itself, anew at each use.
type secrets map[string]string

func (s secrets) read(name string) (string, error) {
	source, known := s[name]
	if !known {
		return "", fmt.Errorf("this worker's config has no secret %s", name)
	}
	kind, where, _ := strings.Cut(source, ":")
	if kind == "file" {
		raw, err := os.ReadFile(where)
		if err != nil {
			return "", fmt.Errorf("its file cannot be read: %w", err)
		}
		return strings.TrimRight(string(raw), "\r\n"), nil
	}
	value, set := os.LookupEnv(where)
	if !set {
		return "", fmt.Errorf("the worker's environment has no %s", where)
	}
	return value, nil
}

// workerSecrets are the secrets of a config for the worker itself.
type workerSecrets struct{ config Config }

// Has implements activities.WorkerSecrets.
func (w workerSecrets) Has(name string) bool {
	_, known := w.config.Secrets[name]
	return known
}

// Read implements activities.WorkerSecrets.
func (w workerSecrets) Read(name activities.OwnSecret) (string, error) {
	return secrets(w.config.Secrets).read(string(name))
}

// ReadShared implements activities.WorkerSecrets.
func (w workerSecrets) ReadShared(name string) (string, error) {
	if w.IsOwn(name) {
		return "", fmt.Errorf("%s is a secret of the worker itself, which no task can have", name)
	}
	return secrets(w.config.Secrets).read(name)
}

// IsOwn implements activities.WorkerSecrets.
func (w workerSecrets) IsOwn(name string) bool {
	source, known := w.config.Secrets[name]
	return known &&
		slices.ContainsFunc(w.config.ownSecrets(), func(own string) bool { return w.config.Secrets[own] == source })
}

// IsOwnVariable implements activities.WorkerSecrets.
func (w workerSecrets) IsOwnVariable(variable string) bool {
	return slices.ContainsFunc(w.config.ownSecrets(),
		func(own string) bool { return w.config.Secrets[own] == "env:"+variable })
}

// hiddenPaths are what the worker reads and what its tasks start must not: its journals, its
// config, the files of its secrets, and what it connects to Temporal with.
func (c Config) hiddenPaths() []string {
	hidden := []string{c.State, "/run/secrets"}
	if c.file != "" {
		hidden = append(hidden, c.file)
	}
	for _, source := range c.Secrets {
		if path, isFile := strings.CutPrefix(source, "file:"); isFile {
			hidden = append(hidden, path)
		}
	}
	if dir, err := os.UserConfigDir(); err == nil {
		hidden = append(hidden, filepath.Join(dir, "temporalio"))
	}
	for _, name := range []string{"TEMPORAL_CONFIG_FILE", "TEMPORAL_TLS_CLIENT_KEY_PATH"} {
		if path := os.Getenv(name); path != "" {
			hidden = append(hidden, path)
		}
	}
	return hidden
}

func listNames(names []string) string {
	if len(names) == 0 {
		return "no secrets"
	}
	return strings.Join(names, ", ")
}
