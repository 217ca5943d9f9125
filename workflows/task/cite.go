package task

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// refusalForm is how a worker, which knows no lines, begins a refusal: the field, or a step and the
// parameter.
var refusalForm = regexp.MustCompile(
	`(?m)(^|Refused: )((?:steps|vars|keep|name|agent|timeout)(?:[.\[][^:\s]*)?): (?:([a-z_]+[a-z0-9_.\[\]]*): )?`)

// Cite puts the position in the file before each refusal in a text from a worker that names a field
// of the document.
func (d *Document) Cite(text string) string {
	return refusalForm.ReplaceAllStringFunc(text, func(found string) string {
		m := refusalForm.FindStringSubmatch(found)
		fields := []string{m[2]}
		if m[3] != "" {
			fields = []string{m[2] + ".with." + m[3], m[2] + "." + m[3], m[2]}
		}
		var n *node
		for _, field := range fields {
			if n = d.find(field); n != nil {
				break
			}
		}
		if n == nil {
			return found
		}
		return fmt.Sprintf("%s%s:%d:%d: %s", m[1], d.File, n.line, n.column, strings.TrimPrefix(found, m[1]))
	})
}

// Position is where the value of a field stands; zero if there is no such field.
func (d *Document) Position(field string) (line, column int) {
	if n := d.find(field); n != nil {
		return n.line, n.column
	}
	return 0, 0
}

var fieldPart = regexp.MustCompile(`[^.\[\]]+`)

// find returns the value of a field such as steps[2].with.path, in which a step may stand with its
// id; nil if there is none.
func (d *Document) find(field string) *node {
	n := d.expanded
	for _, part := range fieldPart.FindAllString(field, -1) {
		switch {
		case n == nil:
			return nil
		case n.kind != list:
			n = n.findValue(part)
			continue
		}
		i, err := strconv.Atoi(part)
		for j, item := range n.items {
			if id := item.findValue("id"); id != nil && id.text == part {
				i, err = j, nil
			}
		}
		if err != nil || i < 0 || i >= len(n.items) {
			return nil
		}
		n = n.items[i]
	}
	return n
}
