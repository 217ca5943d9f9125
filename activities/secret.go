package activities

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// SecretSource tells the values of the secrets that a worker's config allows.
type SecretSource interface {
	// Secret returns the value of a secret for a step of an action; an error that names the way out where it is not allowed there,
	// or is not there. It is asked at each use, so a rotated secret is picked up.
	Secret(name, action string) (string, error)
	// Values are those of all secrets that the worker knows, its own too, which no task can name: what one step has written, another
	// one may show. They are asked for at each call.
	Values() []string
}

// MinSecret is the least length of a secret: what is shorter cannot be masked without masking half of every text.
const MinSecret = 8

// Mask is what stands in place of a secret's value.
const Mask = "***"

var secretRef = regexp.MustCompile(`\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)

// Masker replaces the values of secrets, and the usual encodings of them, wherever they stand.
type Masker struct{ values []string }

// Add makes the masker hide value from now on. Worlds call it (through MaskerFrom) for secrets of their own, such as
// Terraform's sensitive outputs; values shorter than MinSecret are not secrets that can be hidden. Of a value of several
// lines each line is hidden as well: a diff or a plan puts something before each.
func (m *Masker) Add(value string) {
	if m == nil || len(value) < MinSecret {
		return
	}
	for _, v := range append([]string{value}, strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })...) {
		if v = strings.TrimSpace(v); len(v) >= MinSecret {
			m.add(v)
		}
	}
	m.add(value)
	// A secret that contains another is hidden whole.
	slices.SortFunc(m.values, func(a, b string) int { return len(b) - len(a) })
}

// add adds a value in each way in which it may be written.
func (m *Masker) add(value string) {
	escaped, _ := json.Marshal(value)
	inner := func(quoted string) string { return quoted[1 : len(quoted)-1] }
	bare := plainJSON(value)
	for _, v := range []string{
		value, inner(string(escaped)), inner(bare), inner(strconv.Quote(value)),
		inner(strings.NewReplacer("${", "$${", "%{", "%%{").Replace(bare)), // as Terraform shows it
		url.QueryEscape(value), url.PathEscape(value),
		base64.StdEncoding.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte(value)),
		base64.RawStdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
	} {
		if !slices.Contains(m.values, v) {
			m.values = append(m.values, v)
		}
	}
}

// plainJSON is a text as JSON, with < > and & as they are.
func plainJSON(value string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // a text always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// String masks s.
func (m *Masker) String(s string) string {
	if m == nil {
		return s
	}
	for _, v := range m.values {
		s = strings.ReplaceAll(s, v, Mask)
	}
	return s
}

// maskAll masks every string in v, keys of maps included.
func maskAll[T any](m *Masker, v T) (T, error) {
	if m == nil || len(m.values) == 0 {
		return v, nil
	}
	var masked T
	raw, err := json.Marshal(v)
	if err != nil {
		return masked, err
	}
	// Each string is masked decoded: a text that holds JSON of its own is escaped anew in ours.
	var tree any
	if err := exactly(raw, &tree); err != nil {
		return masked, err
	}
	if raw, err = json.Marshal(m.walk(tree)); err != nil {
		return masked, err
	}
	return masked, exactly(raw, &masked)
}

// exactly decodes JSON with numbers as they are written: a float64 would round the long ones.
func exactly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(v)
}

func (m *Masker) walk(v any) any {
	switch v := v.(type) {
	case string:
		return m.String(v)
	case []any:
		for i := range v {
			v[i] = m.walk(v[i])
		}
	case map[string]any:
		masked := make(map[string]any, len(v))
		for k, each := range v {
			masked[m.String(k)] = m.walk(each)
		}
		return masked
	}
	return v
}

// resolveSecrets puts the values of secrets in place of their references, in every string of a JSON document for an action,
// and makes m hide them.
func resolveSecrets(raw json.RawMessage, source SecretSource, action string, m *Masker) (json.RawMessage, error) {
	if !secretRef.Match(raw) {
		return raw, nil
	}
	if source == nil {
		return nil, Errorf(Refused, "secrets.%s: this worker's config allows no secrets", secretRef.FindSubmatch(raw)[1])
	}
	var refused error
	out := secretRef.ReplaceAllFunc(raw, func(ref []byte) []byte {
		name := string(secretRef.FindSubmatch(ref)[1])
		value, err := source.Secret(name, action)
		if err == nil && len(value) < MinSecret {
			err = fmt.Errorf("its value has %d bytes; give it at least %d, or it cannot be masked", len(value), MinSecret)
		}
		if err != nil {
			refused = Errorf(Refused, "secrets.%s: %v", name, err)
			return ref
		}
		m.Add(value)
		escaped, _ := json.Marshal(value)
		return escaped[1 : len(escaped)-1]
	})
	if refused != nil {
		return nil, refused
	}
	return out, nil
}

type contextKey int

const (
	maskerKey contextKey = iota
	commandsKey
)

// WithMasker gives the actions called with ctx a masker to add their own secrets to.
func WithMasker(ctx context.Context, m *Masker) context.Context {
	return context.WithValue(ctx, maskerKey, m)
}

// MaskerFrom is the masker of ctx; a nil one, which hides nothing, where there is none.
func MaskerFrom(ctx context.Context) *Masker {
	m, _ := ctx.Value(maskerKey).(*Masker)
	return m
}

// WithCheckCommands says which programs the command checks of ctx may run; "*" is any.
func WithCheckCommands(ctx context.Context, programs []string) context.Context {
	return context.WithValue(ctx, commandsKey, programs)
}

func allowedCommands(ctx context.Context) []string {
	programs, _ := ctx.Value(commandsKey).([]string)
	return programs
}
