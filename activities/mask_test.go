package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestASecretIsHiddenInEveryEncoding(t *testing.T) {
	m := &activities.Masker{}
	m.Add(`pass"word&<1>${x}`)
	for _, written := range []string{
		`pass"word&<1>${x}`, `pass\"word\u0026\u003c1\u003e${x}`, `pass\"word&<1>${x}`,
		`pass\"word&<1>$${x}`, // Terraform's
		`pass%22word%26%3C1%3E%24%7Bx%7D`,
		`cGFzcyJ3b3JkJjwxPiR7eH0=`,
	} {
		require.Equal(t, "a *** b", m.String("a "+written+" b"))
	}
}

func TestEachLineOfASecretIsHidden(t *testing.T) {
	m := &activities.Masker{}
	m.Add("-----BEGIN KEY-----\r\n  first-line-of-it\nshort\nsecond-line-of-it\n")
	require.Equal(t, "+***\n+  ***\n+short\n+***\n",
		m.String("+-----BEGIN KEY-----\n+  first-line-of-it\n+short\n+second-line-of-it\n"))
	require.Equal(t, "***", m.String("-----BEGIN KEY-----\r\n  first-line-of-it\nshort\nsecond-line-of-it\n"))
}
