package sqlite

import (
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
)

// A statement is volatile if it calls a function that has another value each time: the digest of
// its change then covers which rows it changes, and not the values that it writes. Its program
// shows every call, also those of triggers, defaults and views.

// settled are functions that the library does not call deterministic, whose value the statements
// before them decide, or the library itself.
const settled = " last_insert_rowid changes total_changes sqlite_version sqlite_source_id sqlite_compileoption_get " +
	"sqlite_compileoption_used "

// dates are functions that the library calls deterministic. They take the time if they have no
// argument, or one of present.
const (
	dates   = " date time datetime julianday unixepoch strftime timediff "
	present = " now subsec subsecond "
)

func lists(all, name string) bool { return strings.Contains(all, " "+lower(name)+" ") }

// noteVolatile notes the functions of a statement that have another value each time.
func (e *effect) noteVolatile(d *database, q *sqlite.Stmt, sql string, params any) error {
	if isExplain(d.Conn, q) {
		return nil
	}
	// These statements are ours.
	d.armed = false
	defer func() { d.armed = true }()
	program, _, err := d.PrepareTransient("EXPLAIN " + sql)
	if err != nil {
		return err
	}
	defer func() { _ = program.Finalize() }() // the same error as that of the last step
	calls, timeless, takesTime := []string{}, []string{}, namesPresent(params)
	for {
		more, err := program.Step()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		opcode, first, p4 := program.ColumnText(1), program.ColumnInt(3), program.ColumnText(5)
		name, _, _ := strings.Cut(p4, "(")
		switch {
		case opcode == "String8":
			takesTime = takesTime || lists(present, p4)
		case opcode != "Function": // the library refuses volatile ones in a PureFunc
		case lists(dates, name) && first > 0: // the register of the first argument
			timeless = append(timeless, p4)
		case lists(dates, name):
			calls = append(calls, p4)
		case !lists(settled, name):
			is, err := d.isDeterministic(p4)
			if err != nil {
				return err
			}
			if !is {
				calls = append(calls, p4)
			}
		}
	}
	if takesTime {
		calls = append(calls, timeless...)
	}
	for _, call := range calls {
		name, _, _ := strings.Cut(call, "(")
		if !slices.Contains(e.volatile, name+"()") {
			e.volatile = append(e.volatile, name+"()")
		}
	}
	return nil
}

// isDeterministic asks the library about a function as programs name it, such as "random(0)".
func (d *database) isDeterministic(call string) (bool, error) {
	const flag = 0x800 // SQLITE_DETERMINISTIC
	n, err := d.number("SELECT max(flags & ?) FROM pragma_function_list WHERE name || '(' || narg || ')' = ?", int64(flag),
		call)
	return n != 0, err
}

// namesPresent reports whether a parameter makes a function of dates take the time.
func namesPresent(params any) bool {
	var all []any
	switch params := params.(type) {
	case []any:
		all = params
	case map[string]any:
		for _, v := range params {
			all = append(all, v)
		}
	}
	return slices.ContainsFunc(all, func(v any) bool {
		text, is := v.(string)
		return is && lists(present, text)
	})
}

// describeVolatile says what an approval does not cover; empty if it covers everything.
func (e *effect) describeVolatile() string {
	if len(e.volatile) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"it uses %s, which differs each time: an approval covers the statements and which rows they change, not the "+
			"values that they write",
		strings.Join(slices.Sorted(slices.Values(e.volatile)), ", "))
}
