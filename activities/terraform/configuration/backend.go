package configuration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// Backend is where a configuration keeps its state, as far as its text and the step's settings say.
type Backend struct {
	kind     string
	settings map[string]string
}

var (
	backendBlock = regexp.MustCompile(`\bbackend\s+"([^"]+)"\s*\{|\bcloud\s*\{`)
	setting      = regexp.MustCompile(`([A-Za-z_]+)\s*=\s*"((?:[^"\\]|\\.)*)"`)
	// tokens of HCL that braces and comments are told apart by: texts first, because they may hold
	// either.
	token = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|#[^\n]*|//[^\n]*|(?s:/\*.*?\*/)|[{}]`)
)

// Backends returns the backends that the root module in dir names; settings are what the step adds
// to them. It starts no terraform: a configuration that cannot be read so names none.
func Backends(dir string, settings map[string]string) ([]Backend, error) {
	files, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.tf*"))
	if err != nil {
		return nil, err
	}
	var found []Backend
	for _, file := range files {
		isJSON := strings.HasSuffix(file, ".tf.json")
		if !isJSON && !strings.HasSuffix(file, ".tf") {
			continue
		}
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || info.Size() > maxBundle {
			continue
		}
		content, err := os.ReadFile(file) // links are followed: configurations may share files
		if err != nil {
			return nil, err
		}
		if isJSON {
			found = append(found, backendsInJSON(content)...)
		} else {
			found = append(found, backendsIn(string(content))...)
		}
	}
	for _, b := range found {
		maps.Copy(b.settings, settings)
	}
	return found, nil
}

func escapeGlob(path string) string {
	return regexp.MustCompile(`[\\*?\[]`).ReplaceAllString(path, `\$0`)
}

// backendsIn finds the blocks in a file. Their settings are literals: terraform allows nothing else
// there.
func backendsIn(content string) []Backend {
	content = token.ReplaceAllStringFunc(content, func(t string) string {
		if strings.HasPrefix(t, "#") || strings.HasPrefix(t, "/") {
			return " "
		}
		return t
	})
	var found []Backend
	for _, at := range backendBlock.FindAllStringSubmatchIndex(content, -1) {
		b := Backend{kind: "cloud", settings: map[string]string{}}
		if at[2] >= 0 {
			b.kind = content[at[2]:at[3]]
		}
		for _, s := range setting.FindAllStringSubmatch(content[at[1]:endOfBlock(content, at[1])], -1) {
			b.settings[s[1]] = s[2]
		}
		found = append(found, b)
	}
	return found
}

// endOfBlock is where the block ends that begins at from, after its brace.
func endOfBlock(content string, from int) int {
	depth := 1
	for _, at := range token.FindAllStringIndex(content[from:], -1) {
		switch content[from+at[0]] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return from + at[0]
			}
		}
	}
	return len(content)
}

// backendsInJSON finds the blocks in a file in JSON, where a block may stand in a list.
func backendsInJSON(content []byte) []Backend {
	var file any
	if json.Unmarshal(content, &file) != nil {
		return nil
	}
	var found []Backend
	add := func(kind string, block any) {
		b := Backend{kind: kind, settings: map[string]string{}}
		for _, fields := range objects(block) {
			for name, value := range fields {
				b.settings[name] = fmt.Sprint(value)
			}
		}
		found = append(found, b)
	}
	for _, root := range objects(file) {
		for _, settings := range objects(root["terraform"]) {
			for _, backend := range objects(settings["backend"]) {
				for kind, block := range backend {
					add(kind, block)
				}
			}
			if cloud, has := settings["cloud"]; has {
				add("cloud", cloud)
			}
		}
	}
	return found
}

func objects(value any) []map[string]any {
	switch v := value.(type) {
	case map[string]any:
		return []map[string]any{v}
	case []any:
		var all []map[string]any
		for _, item := range v {
			all = append(all, objects(item)...)
		}
		return all
	}
	return nil
}

// StateFile is the state file of a local backend, relative to the configuration's folder or
// absolute; empty for any other.
func (b Backend) StateFile() string {
	if b.kind != "local" {
		return ""
	}
	if path := b.settings["path"]; path != "" {
		return path
	}
	return StateName
}

// located are the settings that say where a backend of a kind keeps a state. Of other kinds all do
// that are not secret.
var located = map[string][]string{
	"azurerm": {"storage_account_name", "container_name", "key"}, "consul": {"path"}, "gcs": {"bucket", "prefix"},
	"http":       {"address"},
	"kubernetes": {"secret_suffix", "namespace"}, "pg": {"conn_str", "schema_name"}, "s3": {"bucket", "key"},
}

// SecretSettings are settings of a backend that are no part of where its state is, and may change.
var SecretSettings = regexp.MustCompile(`(?i)password|secret|token|credential|access_key|private_key|username`)

var passwordIn = regexp.MustCompile(`(?i)\b(password|user)\s*=\s*('[^']*'|\S+)`)

// Name is the same for every configuration that keeps its state in the same place.
func (b Backend) Name() string {
	names := located[b.kind]
	if names == nil {
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(b.settings)), SecretSettings.MatchString)
	}
	parts := [][]byte{}
	for _, name := range names {
		value := b.settings[name]
		if u, err := url.Parse(value); err == nil && u.User != nil {
			u.User = nil
			value = u.String()
		}
		parts = append(parts, []byte(name), []byte(passwordIn.ReplaceAllString(value, "")))
	}
	return "terraform-state:" + b.kind + ":" + activities.DigestOf(parts...).Short()
}
