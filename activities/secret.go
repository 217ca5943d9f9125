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
	"sync"
)

// SecretSource knows the values of the secrets that a worker's config allows.
type SecretSource interface {
	// Secret returns the value of a secret for a step of an action. If the secret is missing or not
	// allowed there, the error names the way out. Secret is called at each use, so a rotated secret is
	// picked up.
	Secret(name, action string) (string, error)
	// Values returns the values of all secrets that the worker knows, including its own, which no task
	// can name: what one step has written, another one may show. It is called for each call of an
	// action.
	Values() []string
}

// MinSecret is the minimum length of a secret: masking a shorter one would mask half of every text.
const MinSecret = 8

// Mask replaces a secret's value.
const Mask = "***"

var secretRef = regexp.MustCompile(`\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)

// Masker replaces the values of secrets, and their usual encodings, wherever they occur. It may be
// used by several goroutines.
type Masker struct {
	mu     sync.RWMutex
	values []string
}

// Add makes the masker hide these values from now on. Worlds call it (through MaskerFrom) for
// secrets of their own, such as Terraform's sensitive outputs; values shorter than MinSecret are
// not secrets that can be hidden. Of a value of several lines each line is hidden as well: a diff
// or a plan puts something before each.
func (m *Masker) Add(values ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, value := range values {
		m.add(value)
	}
	// A secret that contains another is hidden whole.
	slices.SortFunc(m.values, func(a, b string) int { return len(b) - len(a) })
}

func (m *Masker) add(value string) {
	if len(value) < MinSecret {
		return
	}
	for _, v := range append([]string{value},
		strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })...) {
		if v = strings.TrimSpace(v); len(v) >= MinSecret {
			m.addEncodings(v)
		}
	}
	m.addEncodings(value)
}

// addEncodings adds a value in each of its usual encodings.
func (m *Masker) addEncodings(value string) {
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

// plainJSON encodes a text as JSON without escaping < > and &.
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
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, v := range m.values {
		s = strings.ReplaceAll(s, v, Mask)
	}
	return s
}

func (m *Masker) isEmpty() bool {
	if m == nil {
		return true
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.values) == 0
}

// maskAll masks every string in v, keys of maps included.
func maskAll[T any](m *Masker, v T) (T, error) {
	if m.isEmpty() {
		return v, nil
	}
	var masked T
	raw, err := json.Marshal(v)
	if err != nil {
		return masked, err
	}
	// Strings are masked decoded, because JSON within a string is escaped once more.
	var tree any
	if err := decodeExactly(raw, &tree); err != nil {
		return masked, err
	}
	if raw, err = json.Marshal(m.maskValue(tree)); err != nil {
		return masked, err
	}
	return masked, decodeExactly(raw, &masked)
}

// HoldsSecret reports whether a text has a secret of the call in it.
func HoldsSecret(ctx context.Context, text []byte) bool {
	return MaskerFrom(ctx).String(string(text)) != string(text)
}

// decodeExactly decodes JSON and keeps numbers as they are written: a float64 would round long
// ones.
func decodeExactly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(v)
}

func (m *Masker) maskValue(v any) any {
	switch v := v.(type) {
	case string:
		return m.String(v)
	case []any:
		for i := range v {
			v[i] = m.maskValue(v[i])
		}
	case map[string]any:
		masked := make(map[string]any, len(v))
		for k, each := range v {
			masked[m.String(k)] = m.maskValue(each)
		}
		return masked
	}
	return v
}

// resolveSecrets replaces references to secrets by their values, in every string of a JSON document
// for an action, and makes m hide them.
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
			err = fmt.Errorf("its value has %s; give it at least %d, or it cannot be masked", CountOf(len(value), "byte"),
				MinSecret)
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
	checkRightsKey
	progressKey
)

// WithMasker gives the actions called with ctx a masker to add their own secrets to.
func WithMasker(ctx context.Context, m *Masker) context.Context {
	return context.WithValue(ctx, maskerKey, m)
}

// MaskerFrom returns the masker of ctx, or nil, which hides nothing.
func MaskerFrom(ctx context.Context) *Masker {
	m, _ := ctx.Value(maskerKey).(*Masker)
	return m
}
