package declared

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

// Sight is what a look has seen, or what a call has answered.
type Sight struct {
	// Absent means that there is nothing.
	Absent bool `json:"absent,omitempty"`
	// Text is the text of the answer, and Data its structured content, or its text as JSON.
	Text string `json:"text,omitempty"`
	Data any    `json:"data,omitempty"`
	// Match is what the look's groups hold.
	Match map[string]string `json:"match,omitzero"`
}

// UnmarshalJSON keeps numbers as they are written.
func (s *Sight) UnmarshalJSON(raw []byte) error {
	type plain Sight
	return exactjson.Decode(raw, (*plain)(s))
}

// fields are what expressions and parts refer to.
func (s Sight) fields() map[string]any {
	all := map[string]any{"absent": s.Absent, "text": s.Text, "data": s.Data}
	matched := map[string]any{}
	for name, text := range s.Match {
		matched[name] = text
	}
	all["match"] = matched
	return all
}

// Digest is the fingerprint of what was seen.
func (s Sight) Digest() activities.Digest {
	if s.Match != nil {
		s.Text, s.Data = "", nil
	}
	raw, _ := json.Marshal(s) // it came from JSON
	return activities.DigestOf(raw)
}

// Describe shows what was seen.
func (s Sight) Describe() string {
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

// matched reduces what a look has seen to the groups of a pattern.
func (s Sight) matched(pattern string) Sight {
	re := regexp.MustCompile(pattern) // checked with the declarations
	s.Match = map[string]string{}
	if m := re.FindStringSubmatch(s.Text); m != nil {
		for i, name := range re.SubexpNames() {
			if name != "" {
				s.Match[name] = m[i]
			}
		}
	}
	return s
}

// Outputs are those of a step whose call has answered this. A number that most programs would round
// is given as text, which the notes say.
func (s Sight) Outputs() (outputs map[string]any, notes []string) {
	var rounded []string
	data := replaceRounded(s.Data, "data", &rounded)
	if len(rounded) > 0 {
		notes = []string{"given as text, because the number would be rounded: " + strings.Join(rounded, ", ")}
	}
	return map[string]any{"text": s.Text, "data": data}, notes
}

// maxNamed is how many fields a note names.
const maxNamed = 5

// replaceRounded returns a value with texts in place of the numbers that would be rounded, and
// names the first of them.
func replaceRounded(value any, field string, named *[]string) any {
	switch v := value.(type) {
	case json.Number:
		if !exactjson.Rounds(v) {
			return v
		}
		if len(*named) < maxNamed {
			*named = append(*named, field)
		} else if len(*named) == maxNamed {
			*named = append(*named, "and others")
		}
		return string(v)
	case []any:
		all := make([]any, len(v))
		for i, each := range v {
			all[i] = replaceRounded(each, fmt.Sprintf("%s.%d", field, i), named)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all[name] = replaceRounded(v[name], field+"."+name, named)
		}
		return all
	}
	return value
}

// Answer is what is known of the answer to a call.
type Answer struct {
	Sight

	// Trouble is why it is no success; empty if it is one.
	Trouble string
	// IsFinal means that the call is known to be over.
	IsFinal bool
	// IsLost means that the call has happened, as a look tells, and its answer was lost.
	IsLost bool
}

// Succeeded reports whether the call is known to have succeeded.
func (a Answer) Succeeded() bool { return a.Trouble == "" }

// Fails reports whether the call has ended in an error whose text matches a pattern; none if that
// is empty.
func (a Answer) Fails(pattern string) bool {
	return a.IsFinal && a.Trouble != "" && pattern != "" && regexp.MustCompile(pattern).MatchString(a.Trouble)
}

// See returns what the look has seen, as its call was answered.
func (l Look) See(a Answer) (Sight, error) {
	switch {
	case a.Fails(l.Absent):
		return Sight{Absent: true}, nil
	case a.Trouble != "":
		return Sight{}, fmt.Errorf("%s: %s", l.Tool, a.Trouble)
	case l.Match == "":
		return a.Sight, nil
	}
	return a.matched(l.Match), nil
}
