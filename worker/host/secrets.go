package host

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// secrets reads the values that Config.Secrets allows, each time they are used.
type secrets map[string]string

// Secret implements activities.SecretSource.
func (s secrets) Secret(name string) (string, error) {
	source, allowed := s[name]
	if !allowed {
		return "", fmt.Errorf("this worker's config allows %s", listNames(slices.Sorted(maps.Keys(s))))
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

func listNames(names []string) string {
	if len(names) == 0 {
		return "no secrets"
	}
	return strings.Join(names, ", ")
}

// secretNames lists what is allowed; not nil, which would mean "not known".
func secretNames(s map[string]string) []string {
	return append([]string{}, slices.Sorted(maps.Keys(s))...)
}
