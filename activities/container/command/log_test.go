package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogKeepsTheBeginningAndTheEnd(t *testing.T) {
	var kept bytes.Buffer
	l := NewLog(&kept)
	l.room = 10
	_, err := l.Write([]byte("beginning "))
	require.NoError(t, err)
	const line = "a line that is in the middle somewhere\n"
	for range 4 * maxLogTail / len(line) {
		_, err := l.Write([]byte(line))
		require.NoError(t, err)
	}
	_, err = l.Write([]byte("the end"))
	require.NoError(t, err)
	require.NoError(t, l.Finish())
	assert.True(t, strings.HasPrefix(kept.String(), "beginning \n[unwind: "), kept.String()[:60])
	assert.True(t, strings.HasSuffix(kept.String(), "the end"))
	assert.Less(t, kept.Len(), maxLogTail+200)
}

func TestShortLogIsKeptWhole(t *testing.T) {
	var kept bytes.Buffer
	l := NewLog(&kept)
	_, err := l.Write([]byte("all of it"))
	require.NoError(t, err)
	require.NoError(t, l.Finish())
	assert.Equal(t, "all of it", kept.String())
}
