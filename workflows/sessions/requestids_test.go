package sessions

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheIDsOfTheLastRequestsAreKnown(t *testing.T) {
	var r requestIDs
	for i := range maxRequestIDs + 5 {
		r.add(fmt.Sprint(i))
	}
	r.drop("7")
	for _, known := range []requestIDs{r, requestIDsOf(r.bytes())} {
		require.Len(t, known.order, maxRequestIDs-1)
		require.Len(t, known.known, maxRequestIDs-1)
		require.False(t, known.has("4"), "it was asked for too long ago")
		require.True(t, known.has("5"))
		require.False(t, known.has("7"), "it was refused")
		require.True(t, known.has(fmt.Sprint(maxRequestIDs+4)))
		require.Equal(t, r.bytes(), known.bytes())
	}
}
