// Package yamlfile reads a file of settings, and says of each mistake where it stands: the worker's
// config, a policy.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Place is where a field stands in a file, and how a scalar is written there.
type Place struct {
	Line  int
	Value string
}

// Places are those of the fields that a file has, by their names: "rules[0].when".
type Places map[string]Place

// Section is a field of the file that the struct does not have.
type Section struct {
	Name string
	Into reflect.Value
}

// Read reads the content of a file into a struct, whose yaml tags name the fields, and into sections
// besides. Its error names the line and the field of all that is wrong.
func Read(file string, src []byte, into any, sections ...Section) (Places, error) {
	places := Places{}
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF): // it is empty
		return places, nil
	case err != nil:
		line, message := task.ExplainYAML(src, err)
		return places, fmt.Errorf("%s:%d: %s", file, line, message)
	}
	r := reader{file: file, places: places, sections: sections}
	r.readValue(doc.Content[0], reflect.ValueOf(into).Elem(), "")
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.complainf(&second, "", "a second document begins here; a file holds one")
	case !errors.Is(err, io.EOF):
		line, message := task.ExplainYAML(src, err)
		r.problems = append(r.problems, fmt.Errorf("%s:%d: %s", file, line, message))
	}
	return places, errors.Join(r.problems...)
}

// reader decodes a file into a struct.
type reader struct {
	file     string
	places   Places
	sections []Section // of the outermost struct
	problems []error
}

func (r *reader) complainf(n *yaml.Node, field, format string, args ...any) {
	if field != "" {
		field += ": "
	}
	r.problems = append(r.problems, fmt.Errorf("%s:%d: %s"+format, append([]any{r.file, n.Line, field}, args...)...))
}

func (r *reader) readValue(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	r.places[field] = Place{n.Line, n.Value}
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
func (r *reader) readMap(n *yaml.Node, into reflect.Value, field string) {
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
func (r *reader) isRepeated(lines map[string]int, key *yaml.Node, at string) bool {
	first, twice := lines[key.Value]
	if twice {
		r.complainf(key, at, "stands here a second time; the first is in line %d", first)
		return true
	}
	lines[key.Value] = key.Line
	return false
}

// readFields reads a map into a struct.
func (r *reader) readFields(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		r.complainf(n, field, "must be a map of fields, found %s", found(n))
		return
	}
	known, fields := fieldsOf(into)
	if field == "" {
		for _, s := range r.sections {
			known, fields[s.Name] = append(known, s.Name), s.Into
		}
	}
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
}

// fieldsOf are the names of the fields of a struct in their order, and the fields.
func fieldsOf(into reflect.Value) (known []string, fields map[string]reflect.Value) {
	fields = map[string]reflect.Value{}
	for i := range into.NumField() {
		if name := into.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			known, fields[name] = append(known, name), into.Field(i)
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
		if t.Elem().Kind() == reflect.Struct {
			return "a list of maps of fields"
		}
		return "a list of texts, as in [a, b]"
	case reflect.Map:
		switch t.Elem().Kind() {
		case reflect.Slice:
			return "a map from names to lists of texts"
		case reflect.Struct:
			return "a map from names to maps of fields"
		case reflect.Interface:
			return "a map from names to values"
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
