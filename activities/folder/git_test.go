package folder_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// makeRepository makes a repository with two commits, and all that git status can tell: staged,
// changed, deleted, untracked and ignored files.
const makeRepository = `git init -q -b main . && git config user.name A && git config user.email a@example.com && git config gc.auto 0
		printf 'node_modules/\n*.log\n' >.gitignore; echo one >a; echo one >b; echo one >c; mkdir src; echo x >src/x; ln -s a link
		git add -A && git commit -qm one && git branch topic && echo two >a && git commit -qam two
		echo staged >b && git add b && echo changed >c && rm src/x && echo new >untracked
		mkdir node_modules && echo dep >node_modules/dep; echo log >x.log; git stash list`

// newRepository makes the folder of a bench a repository.
func newRepository(t *testing.T) *bench {
	t.Helper()
	testrun.NeedProgram(t, "git", "install it")
	b := &bench{T: t, dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(treeOf(b.dir), 0o755))
	var err error
	b.world, err = open(b.dir)
	require.NoError(t, err)
	b.sh(makeRepository)
	return b
}

func (b *bench) git(args ...string) string {
	b.Helper()
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = treeOf(b.dir)
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, "%s", out)
	return string(out)
}

// state is all that git tells of the repository.
func (b *bench) state() string {
	b.Helper()
	return strings.Join([]string{
		b.git("status", "--porcelain=v2", "--branch", "--untracked-files=all"), b.git("show-ref"),
		b.git("ls-files", "--stage"), b.git("diff"), b.git("diff", "--cached"), b.git("reflog"), b.git("stash", "list"),
		b.git("fsck", "--full", "--no-dangling"),
	}, "\n")
}

func (b *bench) checkpoint(with params) string {
	b.Helper()
	_, r, err := b.apply(0, with)
	require.NoError(b, err)
	name, _ := r.Outputs["checkpoint"].(string)
	return name
}

// wreck is what an agent may do to a repository, up to the loss of commits.
const wreck = `git checkout -qf topic; git reset -q --hard; git branch -qD main; git stash list; echo topic >a; git commit -qam three
	git tag v1; git reflog expire --expire=now --all; git gc -q --prune=now; rm -f c; echo more >later; mkdir deep; echo x >deep/x
	echo '*.tmp' >>.gitignore; echo t >deep/y.tmp; echo t >deep/y.log; mkdir -p tmp.d; echo z >tmp.d/z; echo z >tmp.d/z.log; echo tmp.d/ >>.gitignore; echo dep2 >node_modules/dep; echo another >y.log`

func TestARepositoryComesBackAsItWas(t *testing.T) {
	b := newRepository(t)
	before := b.state()
	name := b.checkpoint(params{"path": treeOf(b.dir), "git": true})
	require.Equal(t, before, b.state(), "nothing of ours is in it")
	b.sh(wreck)
	wrecked := b.state()
	e, r, err := b.apply(1, params{"path": treeOf(b.dir), "checkpoint": name})
	require.NoError(t, err)
	require.Equal(t, before, b.state())
	for path, content := range map[string]string{"node_modules/dep": "dep2\n", "x.log": "log\n", "y.log": "another\n",
		"deep/y.log": "t\n", "untracked": "new\n", "a": "two\n"} {
		raw, err := os.ReadFile(filepath.Join(treeOf(b.dir), path))
		require.NoError(t, err)
		require.Equal(t, content, string(raw), path)
	}
	for _, path := range []string{"deep/x", "deep/y.tmp", "tmp.d/z"} { // made since, and not ignored by the rules of then
		require.NoFileExists(t, filepath.Join(treeOf(b.dir), path))
	}
	require.Equal(t, []string{"stays: 2 folders that would have to go, for they hold what is left alone: /deep, /tmp.d"}, r.Notes)

	b.sh("echo more >>y.log; mkdir node_modules/z") // ignored files are nobody's drift
	u := b.undo(e, activities.Decision{})
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
	require.Equal(t, wrecked, b.state())
}

func TestIgnoredFilesComeBackWhereThatIsAsked(t *testing.T) {
	b := newRepository(t)
	before := manifest(t, b.dir)
	name := b.checkpoint(params{"path": treeOf(b.dir), "git": true, "ignored": true})
	b.sh(wreck)
	_, _, err := b.apply(1, params{"path": treeOf(b.dir), "checkpoint": name})
	require.NoError(t, err)
	var kept []string
	was := map[string]bool{}
	for line := range strings.Lines(before) {
		was[line] = true
	}
	for line := range strings.Lines(manifest(t, b.dir)) {
		if !was[line] && !strings.Contains(line, "/.git/objects") {
			kept = append(kept, line)
		}
	}
	require.Empty(t, kept, "all but the objects made since")
}

// TestProgramsOfARepositoryDoNotRun: its config and its hooks may name some.
func TestProgramsOfARepositoryDoNotRun(t *testing.T) {
	b := newRepository(t)
	ran := filepath.Join(b.dir, "ran")
	b.sh(`git config core.fsmonitor "touch ` + ran + `; false"
		for h in post-checkout post-index-change pre-commit reference-transaction fsmonitor-watchman; do
			printf '#!/bin/sh\ntouch ` + ran + `\n' >.git/hooks/$h; chmod +x .git/hooks/$h; done
		rm -f ` + ran)
	name := b.checkpoint(params{"path": treeOf(b.dir), "git": true})
	b.sh("echo changed >a")
	e, _, err := b.apply(1, params{"path": treeOf(b.dir), "checkpoint": name})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, b.undo(e, activities.Decision{}).Outcome)
	require.NoFileExists(t, ran)
}

func TestWhatIsNoRepositoryAtRestIsRefused(t *testing.T) {
	b := newRepository(t)
	lock := filepath.Join(treeOf(b.dir), ".git", "index.lock")
	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	_, _, err := b.apply(0, params{"path": treeOf(b.dir), "git": true})
	require.ErrorContains(t, err, ".git/index.lock is there")
	require.NoError(t, os.Remove(lock))
	_, _, err = b.apply(0, params{"path": filepath.Join(treeOf(b.dir), "src"), "git": true})
	require.ErrorContains(t, err, "is no git repository: it has no .git")
	b.sh("git worktree add -q ../other topic")
	_, _, err = b.apply(0, params{"path": filepath.Join(b.dir, "root", "other"), "git": true})
	require.ErrorContains(t, err, "is a worktree or a submodule")
	_, _, err = b.apply(0, params{"path": treeOf(b.dir), "ignored": true})
	require.ErrorContains(t, err, "needs git: true")
}
