package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

// expression is ${{ ROOT.FIELD... }}: a value that is nothing else is replaced by what it names, as
// it is; within a text, by its text.
var expression = regexp.MustCompile(`\$\{\{\s*([A-Za-z]+(?:\.[A-Za-z0-9_-]+)*)\s*\}\}`)

// values are what expressions name.
type values map[string]any

// fill replaces the expressions in a template.
func (v values) fill(template any) (any, error) {
	switch t := template.(type) {
	case map[string]any:
		filled := make(map[string]any, len(t))
		for name, each := range t {
			one, err := v.fill(each)
			if err != nil {
				return nil, err
			}
			filled[name] = one
		}
		return filled, nil
	case []any:
		filled := make([]any, len(t))
		for i, each := range t {
			one, err := v.fill(each)
			if err != nil {
				return nil, err
			}
			filled[i] = one
		}
		return filled, nil
	case string:
		return v.fillText(t)
	}
	return template, nil
}

func (v values) fillText(text string) (any, error) {
	if m := expression.FindStringSubmatch(text); m != nil && m[0] == text {
		return v.find(m[1])
	}
	var problem error
	filled := expression.ReplaceAllStringFunc(text, func(each string) string {
		value, err := v.find(expression.FindStringSubmatch(each)[1])
		if err != nil {
			problem = err
		}
		return plainText(value)
	})
	return filled, problem
}

// find returns what a dotted path names; a number names an item of a list.
func (v values) find(path string) (any, error) {
	var at any = map[string]any(v)
	for name := range strings.SplitSeq(path, ".") {
		switch in := at.(type) {
		case map[string]any:
			next, is := in[name]
			if !is {
				return nil, fmt.Errorf("${{ %s }}: there is no %s", path, name)
			}
			at = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil, fmt.Errorf("${{ %s }}: the list has no item %s", path, name)
			}
			at = in[i]
		default:
			return nil, fmt.Errorf("${{ %s }}: there is no %s", path, name)
		}
	}
	return at, nil
}

// rootsIn are the first names of all expressions in a template.
func rootsIn(template any) (roots []string) {
	for _, text := range textsIn(template) {
		for _, m := range expression.FindAllStringSubmatch(text, -1) {
			root, _, _ := strings.Cut(m[1], ".")
			roots = append(roots, root)
		}
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// brokenIn are the texts in a template with the start of an expression that is none.
func brokenIn(template any) (broken []string) {
	for _, text := range textsIn(template) {
		if strings.Contains(expression.ReplaceAllString(text, " "), "${{") {
			broken = append(broken, text)
		}
	}
	return broken
}

// textsIn are the texts in a template, in order.
func textsIn(template any) (texts []string) {
	switch t := template.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(t)) {
			texts = append(texts, textsIn(t[name])...)
		}
	case []any:
		for _, each := range t {
			texts = append(texts, textsIn(each)...)
		}
	case string:
		texts = append(texts, t)
	}
	return texts
}

// plainText is a value as text.
func plainText(value any) string {
	if text, is := value.(string); is {
		return text
	}
	raw, _ := json.Marshal(value) // it was JSON or YAML
	return string(raw)
}

// holds reports whether part is a part of whole: of objects, the named fields; of all else, the
// whole.
func holds(whole, part any) bool {
	switch p := part.(type) {
	case map[string]any:
		w, is := whole.(map[string]any)
		for name, each := range p {
			if value, has := w[name]; !is || !has || !holds(value, each) {
				return false
			}
		}
		return is
	case []any:
		w, is := whole.([]any)
		if !is || len(w) != len(p) {
			return false
		}
		for i := range p {
			if !holds(w[i], p[i]) {
				return false
			}
		}
		return true
	}
	left, errLeft := json.Marshal(whole)
	right, errRight := json.Marshal(part)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}

// sight is what a look has seen, or what a call has answered.
type sight struct {
	// Absent means that there is nothing.
	Absent bool `json:"absent,omitempty"`
	// Text is the text of the answer, and Data its structured content, or its text as JSON.
	Text string `json:"text,omitempty"`
	Data any    `json:"data,omitempty"`
	// Match is what the look's groups hold.
	Match map[string]string `json:"match,omitzero"`
}

// UnmarshalJSON keeps numbers as they are written.
func (s *sight) UnmarshalJSON(raw []byte) error {
	type plain sight
	return exactjson.Decode(raw, (*plain)(s))
}

// fields are what expressions and parts refer to.
func (s sight) fields() map[string]any {
	all := map[string]any{"absent": s.Absent, "text": s.Text, "data": s.Data}
	matched := map[string]any{}
	for name, text := range s.Match {
		matched[name] = text
	}
	all["match"] = matched
	return all
}

// digest is the fingerprint of what was seen.
func (s sight) digest() activities.Digest {
	if s.Match != nil {
		s.Text, s.Data = "", nil
	}
	raw, _ := json.Marshal(s) // it came from JSON
	return activities.DigestOf(raw)
}

// describe shows what was seen.
func (s sight) describe() string {
	switch {
	case s.Absent:
		return "(nothing)"
	case s.Match != nil:
		return plainText(s.Match)
	case s.Text != "":
		return s.Text
	}
	return plainText(s.Data)
}
