package activities

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DurationPattern is how a time is written in a task file: 30s, 2h, 3d, 1h30m.
const DurationPattern = `^([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$`

var durationForm = regexp.MustCompile(DurationPattern)

var durationUnits = [...]time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond}

// MaxDuration is the longest time that can be written.
const MaxDuration = 3650 * 24 * time.Hour

// MaxWait is how long a step of wait.for may wait at most.
const MaxWait = 30 * 24 * time.Hour

// ParseDuration reads a time longer than zero and not longer than MaxDuration.
func ParseDuration(s string) (time.Duration, bool) {
	m := durationForm.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	var d time.Duration
	for i, unit := range durationUnits {
		digits := m[i+1]
		for digits != "" && (digits[len(digits)-1] < '0' || digits[len(digits)-1] > '9') {
			digits = digits[:len(digits)-1]
		}
		n, _ := strconv.Atoi(digits) // empty: zero
		d += time.Duration(n) * unit
	}
	return d, d > 0 && d <= MaxDuration
}

var durationNames = [...]string{"d", "h", "m", "s", "ms"}

// WriteDuration writes a time of at least a millisecond as ParseDuration reads it.
func WriteDuration(d time.Duration) string {
	var b strings.Builder
	for i, unit := range durationUnits {
		if n := d / unit; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + durationNames[i])
			d %= unit
		}
	}
	return b.String()
}
