package stack

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

func TestMain(m *testing.M) {
	boxtest.Main()
	if pid := os.Getenv(threadEnv); pid != "" {
		oneThreadEnters(pid)
	}
	os.Exit(m.Run())
}

// box is a container under test, with layers.
type box struct {
	*Target
	*boxtest.Box
	layers string
}

func newBox(t *testing.T) *box { return boxOf(t, boxtest.New(t, boxtest.Sleeps)) }

func boxOf(t *testing.T, of *boxtest.Box) *box {
	t.Helper()
	b := &box{Box: of}
	b.layers = filepath.Join(b.Dir, "layers")
	for _, d := range []string{"layers", "door"} {
		require.NoError(t, os.Mkdir(filepath.Join(b.Dir, d), 0o755))
	}
	var err error
	b.Target, err = Open(b.PID)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// show makes layer n the upper one over lower ones.
func (b *box) show(t *testing.T, n int, lower ...int) {
	t.Helper()
	require.NoError(t, layer.Make(b.layers, n))
	top, _, err := b.Show(b.survey(t), b.view(n, lower...), false, atOnce)
	require.NoError(t, err)
	require.Equal(t, b.top(t), top)
}

func atOnce() error { return nil }

func (b *box) view(n int, lower ...int) View {
	return View{Dir: b.layers, Name: "box:" + strconv.Itoa(n), Lower: lower, Upper: n, Door: filepath.Join(b.Dir, "door")}
}

func (b *box) top(t *testing.T) Top {
	t.Helper()
	s := b.survey(t)
	require.NotEmpty(t, s.Tops)
	return s.Tops[len(s.Tops)-1]
}

func (b *box) survey(t *testing.T) Survey {
	t.Helper()
	s, err := b.Survey()
	require.NoError(t, err)
	return s
}

// users counts those who stand in a top.
func (b *box) users(t *testing.T, top Top) int {
	t.Helper()
	n, err := b.Users(top)
	require.NoError(t, err)
	return n
}
