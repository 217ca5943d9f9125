package workspace

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

func TestLockIn(t *testing.T) {
	const info = `ConditionalCheckFailedException: The conditional request failed
Lock Info:
  ID:        5fa1c1d2-1111-2222-3333-444455556666
  Path:      bucket/key
  Operation: OperationTypeApply
  Who:       root@build-7
  Version:   1.11.4
  Created:   2026-03-01 10:11:12.123456789 +0000 UTC
  Info:      `
	said := func(detail string) stream.Report {
		return stream.Report{Errors: []stream.Diagnostic{{Severity: "error", Summary: lockHeld, Detail: detail}}}
	}
	l, found := lockIn(said(info))
	require.True(t, found)
	assert.Equal(t, stateLock{"5fa1c1d2-1111-2222-3333-444455556666", "root@build-7",
		time.Date(2026, 3, 1, 10, 11, 12, 123456789, time.UTC)}, l)

	_, found = lockIn(said(strings.Replace(info, "ConditionalCheckFailedException",
		"HTTP remote state already locked: ID=other", 1)))
	assert.False(t, found, "that is the asker's own info, not the holder's")
	_, found = lockIn(said(strings.Replace(info, "ConditionalCheckFailedException:",
		"HTTP remote state already locked:\nID=other", 1)))
	assert.False(t, found, "the same, wrapped for a terminal")
	_, found = lockIn(stream.Report{Errors: []stream.Diagnostic{{Summary: "Invalid function argument", Detail: info}}})
	assert.False(t, found)
}
