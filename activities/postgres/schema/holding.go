package schema

import (
	"fmt"
	"regexp"
	"strconv"
)

var holding = regexp.MustCompile(`^unwind_(-?[0-9]+)_[0-9]+$`)

// HoldingOf is the schema that holds what the alteration with this number takes out of the way, for a record.
func HoldingOf(record int64, alteration int) string {
	return fmt.Sprintf("unwind_%d_%d", record, alteration)
}

// HolderOf returns the record that a schema holds things for; false for schemas that are not ours, whatever they are called.
func HolderOf(schema string) (record int64, isOurs bool) {
	found := holding.FindStringSubmatch(schema)
	if found == nil {
		return 0, false
	}
	record, err := strconv.ParseInt(found[1], 10, 64)
	return record, err == nil
}

// IsJournal reports whether a schema is ours.
func IsJournal(schema string) bool {
	_, isHolding := HolderOf(schema)
	return isHolding || schema == "unwind"
}

// IsHeld reports whether a quoted name is one in a schema of ours.
func IsHeld(name string) bool { return heldName.MatchString(name) }

var heldName = regexp.MustCompile(`^"?unwind_-?[0-9]+_[0-9]+"?\.`)
