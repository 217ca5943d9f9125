package bearer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const annsToken = "token-of-ann-0123456789"

func TestBadTokensAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	for content, said := range map[string]string{
		"":                                    "it names no token",
		"ann\n":                               "tokens:1: write NAME TOKEN",
		"ann short\n":                         "with a token of at least",
		"ann " + annsToken + " boss\n":        `tokens:1: "boss" is no role: write viewer, approver or operator`,
		"ann " + annsToken + " viewer more\n": "tokens:1: write NAME TOKEN",
		"ann " + annsToken + "\nbob " + annsToken:      "tokens:2: the token is already that of ann",
		"# nobody\n\nann " + annsToken + " Viewer\n\n": `tokens:3: "Viewer" is no role`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := Read(file)
		require.ErrorContains(t, err, said)
	}
	_, err := Read(file + "-missing")
	require.ErrorContains(t, err, "--tokens: ")
}

func TestAPersonIsFoundByTheToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte("# whose\nann "+annsToken+"\n\nbob token-of-bob-0123456789 viewer\n"),
		0o600))
	tokens, err := Read(file)
	require.NoError(t, err)
	ann, known := tokens.Find(DigestOf(annsToken))
	require.True(t, known)
	require.Equal(t, Person{"ann", Operator}, ann)
	require.True(t, ann.MayDecide() && ann.MayOperate())
	bob, known := tokens.Find(DigestOf("token-of-bob-0123456789"))
	require.True(t, known)
	require.False(t, bob.MayDecide() || bob.MayOperate())
	_, known = tokens.Find(DigestOf(""))
	require.False(t, known)
}
