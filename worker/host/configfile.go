package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// ReadConfig reads a config file. Its error names the line and the field of all that is wrong with
// it.
func ReadConfig(file string) (Config, error) {
	c := Config{written: map[string]written{}}
	src, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if c.file, err = filepath.Abs(file); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF): // it is empty
		return c, nil
	case err != nil:
		line, message := task.ExplainYAML(src, err)
		return c, fmt.Errorf("%s:%d: %s", file, line, message)
	}
	r := configReader{name: file, written: c.written}
	r.readValue(doc.Content[0], reflect.ValueOf(&c).Elem(), "")
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.complainf(&second, "", "a second document begins here; a file holds one config")
	case !errors.Is(err, io.EOF):
		line, message := task.ExplainYAML(src, err)
		r.problems = append(r.problems, fmt.Errorf("%s:%d: %s", file, line, message))
	}
	return c, errors.Join(r.problems...)
}

// written is where a field stands in the config file, and how.
type written struct {
	line  int
	value string
}

// configReader decodes a config file into a Config.
type configReader struct {
	name     string // of the file
	written  map[string]written
	problems []error
}

func (r *configReader) complainf(n *yaml.Node, field, format string, args ...any) {
	if field != "" {
		field += ": "
	}
	r.problems = append(r.problems, fmt.Errorf("%s:%d: %s"+format, append([]any{r.name, n.Line, field}, args...)...))
}

func (r *configReader) readValue(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	r.written[field] = written{n.Line, n.Value}
	isNull := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
	switch {
	case into.Kind() == reflect.Pointer && isNull:
		r.complainf(n, field, "has no value, so it would not be served; write %s: {}, or leave it out", field)
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		r.readFields(n, into.Elem(), field)
	case into.Kind() == reflect.Struct:
		if !isNull {
			r.readFields(n, into, field)
		}
	case into.Type() == reflect.TypeFor[time.Duration]() && n.ShortTag() == "!!int" && n.Value != "0":
		r.complainf(n, field, "must be a time, such as 30s, 5m or 2h, found %s", n.Value)
	case into.Kind() == reflect.Map:
		if !isNull {
			r.readMap(n, into, field)
		}
	case into.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			r.readValue(item, into.Index(i), fmt.Sprintf("%s[%d]", field, i))
		}
	default:
		if err := n.Decode(into.Addr().Interface()); err != nil {
			r.complainf(n, field, "must be %s, found %s", kindOf(into.Type()), found(n))
		}
	}
}

// readMap reads a map whose keys are names that the file chooses.
func (r *configReader) readMap(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		r.complainf(n, field, "must be %s, found %s", kindOf(into.Type()), found(n))
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], field+"."+n.Content[i].Value
		if r.isRepeated(lines, key, at) {
			continue
		}
		value := reflect.New(into.Type().Elem()).Elem()
		r.readValue(n.Content[i+1], value, at)
		into.SetMapIndex(reflect.ValueOf(key.Value), value)
	}
}

// isRepeated complains of a key that stands in its map a second time.
func (r *configReader) isRepeated(lines map[string]int, key *yaml.Node, at string) bool {
	first, twice := lines[key.Value]
	if twice {
		r.complainf(key, at, "stands here a second time; the first is in line %d", first)
		return true
	}
	lines[key.Value] = key.Line
	return false
}

// readFields reads a map into a struct.
func (r *configReader) readFields(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		r.complainf(n, field, "must be a map of fields, found %s", found(n))
		return
	}
	known, fields := fieldsOf(into)
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], n.Content[i].Value
		if field != "" {
			at = field + "." + at
		}
		if r.isRepeated(lines, key, at) {
			continue
		}
		if _, isKnown := fields[key.Value]; !isKnown {
			fix := task.SuggestNearest(key.Value, known)
			if fix == "" {
				fix = "known are " + strings.Join(known, ", ")
			}
			r.complainf(key, at, "there is no such field; %s", fix)
			continue
		}
		r.readValue(n.Content[i+1], fields[key.Value], at)
	}
	if c, is := reflect.TypeAssert[*Config](into.Addr()); is {
		for _, name := range WorldNames() {
			if section := fields[name]; !section.IsNil() {
				c.Worlds = append(c.Worlds, section.Interface().(activities.Settings))
			}
		}
	}
}

// fieldsOf are the names of the fields of a struct in their order, and the fields. A Config has one
// for each kind of world besides.
func fieldsOf(into reflect.Value) (known []string, fields map[string]reflect.Value) {
	fields = map[string]reflect.Value{}
	add := func(name string, value reflect.Value) { known, fields[name] = append(known, name), value }
	for i := range into.NumField() {
		if name := into.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			add(name, into.Field(i))
		}
	}
	if into.Type() == reflect.TypeFor[Config]() {
		for _, k := range Kinds {
			add(k.Name(), reflect.New(reflect.TypeOf(k.Sample)).Elem())
		}
	}
	return known, fields
}

// found says what stands somewhere, as a message shows it.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}

// kindOf says what a field must be.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list of texts, as in [a, b]"
	case reflect.Map:
		switch t.Elem().Kind() {
		case reflect.Slice:
			return "a map from names to lists of texts"
		case reflect.Struct:
			return "a map from names to maps of fields"
		}
		return "a map from names to texts"
	case reflect.Int, reflect.Int64:
		if t == reflect.TypeFor[time.Duration]() {
			return "a time, such as 30s, 5m or 2h"
		}
		return "a whole number"
	}
	return "another value"
}

// cite says where a field stands in the config file, or that it is of the config where it does not
// come from there.
func (c Config) cite(field string) string {
	for name := field; ; {
		if at, ok := c.written[name]; ok {
			overridden := map[string]string{"host": c.Host, "queue": c.Queue, "state": c.State, "listen": c.Listen,
				"schedules": c.Schedules}
			if now, can := overridden[name]; can && now != at.value {
				break
			}
			return fmt.Sprintf("%s:%d", c.file, at.line)
		}
		i := strings.LastIndex(name, ".")
		if i < 0 {
			break
		}
		name = name[:i]
	}
	return "config"
}
