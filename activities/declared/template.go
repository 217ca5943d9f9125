package declared

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// expression is ${{ ROOT.FIELD... }}: a value that is nothing else is replaced by what it names, as
// it is; within a text, by its text.
var expression = regexp.MustCompile(`\$\{\{\s*([A-Za-z]+(?:\.[A-Za-z0-9_-]+)*)\s*\}\}`)

// Values are what expressions name.
type Values map[string]any

// Fill replaces the expressions in a template.
func (v Values) Fill(template map[string]any) (map[string]any, error) {
	filled := make(map[string]any, len(template))
	for name, each := range template {
		one, err := v.fillAny(each)
		if err != nil {
			return nil, err
		}
		filled[name] = one
	}
	return filled, nil
}

func (v Values) fillAny(template any) (any, error) {
	switch t := template.(type) {
	case map[string]any:
		return v.Fill(t)
	case []any:
		filled := make([]any, len(t))
		for i, each := range t {
			one, err := v.fillAny(each)
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

func (v Values) fillText(text string) (any, error) {
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
func (v Values) find(path string) (any, error) {
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
