// Package exactjson reads JSON that others have sent so that what is kept of it is what they sent.
// encoding/json replaces what it cannot hold, takes the last of two fields of one name, and rounds
// long numbers; here such a text is refused, and numbers stay as written.
package exactjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on a text: how deep its values may be nested, and how many there may be.
const (
	MaxDepth  = 100
	MaxValues = 100_000
)

// Decode decodes one value, with numbers as they are written.
func Decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

// Check refuses a text that would not be kept as it is, or whose values are too many. The error
// begins with the field. Its values are counted, so that who reads several texts can bound their
// sum.
func Check(raw []byte) (values int, err error) { return check(raw, false) }

func check(raw []byte, mustFit bool) (values int, err error) {
	c := checker{mustFit: mustFit, raw: raw, decoder: json.NewDecoder(bytes.NewReader(raw))}
	c.decoder.UseNumber()
	for {
		switch err := c.next(); {
		case errors.Is(err, io.EOF) && len(c.at) == 0:
			return c.values, nil
		case errors.Is(err, io.EOF):
			return c.values, io.ErrUnexpectedEOF
		case err != nil:
			return c.values, fmt.Errorf("%s: %w", c.field(), err)
		}
	}
}

// CheckFits refuses besides a number that is out of the range of a float64, in which schemas are
// checked.
func CheckFits(raw []byte) error {
	_, err := check(raw, true)
	return err
}

// checker walks through a text.
type checker struct {
	mustFit bool
	raw     []byte
	decoder *json.Decoder
	at      []level
	values  int
}

// level is an object or a list that the walk is in.
type level struct {
	isList bool
	item   int
	key    string
	keys   map[string]bool
	hasKey bool // the value of key comes next
}

func (c *checker) next() error {
	before := c.decoder.InputOffset()
	token, err := c.decoder.Token()
	if err != nil {
		return err
	}
	if delim, is := token.(json.Delim); is && (delim == '}' || delim == ']') {
		c.at = c.at[:len(c.at)-1]
		return nil
	}
	isKey, err := c.place(token)
	if err != nil {
		return err
	}
	if _, is := token.(string); is {
		if err := checkString(c.raw[before:c.decoder.InputOffset()]); err != nil {
			return err
		}
	}
	if n, is := token.(json.Number); is && c.mustFit {
		if _, err := n.Float64(); err != nil {
			return fmt.Errorf("the number %s is out of range", shortNumber(n))
		}
	}
	if isKey {
		return nil
	}
	if c.values++; c.values > MaxValues {
		return fmt.Errorf("it has more values than %d", MaxValues)
	}
	if delim, is := token.(json.Delim); is {
		if len(c.at) == MaxDepth {
			return fmt.Errorf("it is nested deeper than %d", MaxDepth)
		}
		c.at = append(c.at, level{isList: delim == '[', item: -1, keys: map[string]bool{}})
	}
	return nil
}

// place notes where a token stands, and reports whether it is the name of a field.
func (c *checker) place(token json.Token) (isKey bool, err error) {
	if len(c.at) == 0 {
		return false, nil
	}
	in := &c.at[len(c.at)-1]
	switch {
	case in.isList:
		in.item++
		return false, nil
	case in.hasKey:
		in.hasKey = false
		return false, nil
	}
	in.key, _ = token.(string)
	if in.keys[in.key] {
		return true, errors.New("the object has two fields of this name")
	}
	in.keys[in.key], in.hasKey = true, true
	return true, nil
}

// field is where the walk has come.
func (c *checker) field() string {
	var b strings.Builder
	for i, in := range c.at {
		switch {
		case in.isList && in.item >= 0:
			fmt.Fprintf(&b, "[%d]", in.item)
		case in.isList:
		case i > 0:
			b.WriteString("." + shortName(in.key))
		default:
			b.WriteString(shortName(in.key))
		}
		if b.Len() > maxField {
			return b.String()[:maxField] + "..."
		}
	}
	if b.Len() == 0 {
		return "JSON"
	}
	return b.String()
}

// maxField bounds, in bytes, the field in an error.
const maxField = 200

func shortNumber(n json.Number) string {
	if len(n) > 40 {
		return string(n[:40]) + "..."
	}
	return string(n)
}

func shortName(key string) string {
	if quoted := strconv.QuoteToASCII(key); quoted != `"`+key+`"` {
		return quoted
	}
	return key
}

// checkString refuses a string that Go cannot hold: one that is no UTF-8, or has half of a
// surrogate pair.
func checkString(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("a string is not valid UTF-8")
	}
	for at := 0; at < len(raw); at++ {
		if raw[at] != '\\' {
			continue
		}
		if at++; raw[at] != 'u' {
			continue
		}
		switch unit := escapedUnit(raw[at-1:]); {
		case unit>>10 == 0xDC00>>10, unit>>10 == 0xD800>>10 && escapedUnit(raw[at+5:])>>10 != 0xDC00>>10:
			return fmt.Errorf(`a string has \u%04x without the other half of its surrogate pair`, unit)
		case unit>>10 == 0xD800>>10:
			at += 6
		}
		at += 4
	}
	return nil
}

// escapedUnit is the UTF-16 unit of an escape at the start of a text; 0 if there is none.
func escapedUnit(text []byte) uint64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	unit, _ := strconv.ParseUint(string(text[2:6]), 16, 32)
	return unit
}

// Rounds reports whether a float64, which is what most programs read a number as, is another
// number.
func Rounds(n json.Number) bool {
	f, err := n.Float64()
	if err != nil {
		return true
	}
	return decimal(string(n)) != decimal(strconv.FormatFloat(f, 'e', -1, 64))
}

// decimal is a number by its digits without zeros around them, and the place of the first; of two
// texts of one number it is the same.
func decimal(n string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(n, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	at, err := strconv.ParseInt("0"+strings.TrimLeft(exponent, "+-"), 10, 32)
	if strings.HasPrefix(exponent, "-") {
		at = -at
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	at += int64(len(whole)) - int64(len(whole+fraction)-len(digits))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		at = 0
	}
	if err != nil {
		return n
	}
	return fmt.Sprint(strings.HasPrefix(n, "-"), digits, at)
}
