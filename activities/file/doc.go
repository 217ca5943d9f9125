// Package file is the world of files: file.write and file.delete. Their undo is exact, down to the
// nanosecond of a file's time.
//
//	w, err := file.New(file.Config{Roots: []string{"/srv/app"}})
//
//	- id: configure
//	  uses: file.write
//	  with: { path: /srv/app/app.yml, content: "port: 80\n", mode: "0640" }
//	- id: publish
//	  uses: file.write
//	  with:
//	    files:
//	      - { path: /srv/app/site/index.html, source: /srv/app/build/index.html }
//	      - { path: /srv/app/site/robots.txt, content: "" }
//	- id: clean
//	  uses: file.delete
//	  with: { paths: [/srv/app/old, /srv/app/cache] }
//
// # What is changed
//
// Only what is in the allowed roots, through os.Root: no symlink and no .. leads out of them. A
// step changes one root. file.write follows a symlink at the end of a path, file.delete deletes the
// link itself. A replaced file passes on its owner, its mode (without setuid and setgid) and its
// extended attributes. A new file has mode 0644 whatever the umask and the folder's default ACL,
// and the folder's group if that has the setgid bit; missing folders are made. A deleted folder may
// hold anything: symlinks, hard links, pipes, sockets, devices.
//
// Inline content is in the task's history. For large or private content, name a source; the content
// of sources, of files that only their owner may read, and of files with a secret appears in no
// plan and no drift, only sizes and digests.
//
// # How a change is made
//
// Each root has a store on the same filesystem, ROOT/.unwind (mode 0700, ignored by git):
//
//	.unwind/journal            see package journal
//	.unwind/stage/TOKEN/...    what a forward is about to put into place; afterwards, the originals
//	.unwind/undo/TOKEN/...     the same, once an undo has taken it away from the forward
//	.unwind/redo/TOKEN/...     what a rollback has taken away, for a redo
//	.unwind/trash              what may be removed
//
// The new content is staged and synced, with owner, mode, times and extended attributes. The checks
// run on it. The record is written: what is staged, and what is at the target. Then one renameat2
// exchanges the two (RENAME_EXCHANGE; or RENAME_NOREPLACE if one of them does not exist), and what
// came out is compared with the record: if someone else changed the target in between, it is given
// back. Nothing writes to a target after that. So what is kept is the original itself, not a copy:
// with its inode, its hard links and its open descriptors, at the price of a rename, whatever its
// size. A file in a new folder is one rename too, that of the topmost new folder.
//
// # How it is undone
//
// By the same call, backwards. The staged file's path is a ticket: the kernel resolves it when the
// call runs. An undo first moves the folder stage/TOKEN away and leaves a plain file in its place,
// a tombstone; from then on every rename of a late forward fails, even in a process that was
// stopped just before it, without anybody waiting for a lock. Attempts of an undo take the tickets
// from each other in the same way, and the one that finishes leaves a tombstone for all others
// before it returns.
//
// An undo examines all of a step's files before it touches the first. What is not as the step left
// it is drift, shown as a unified diff and left alone; in a folder that the step made, that
// includes what others have put there. If an original is not as recorded, that is DamagedRecord,
// and nothing is touched. In the end the folders in which files were changed get their times back,
// unless someone else has changed something in them since; if the worker may not set a folder's
// time, that is reported as a loss.
//
// # How it is redone
//
// A rollback after the commit (Decision.Redoable) keeps what it removes, including what others had
// changed in it if it was forced. It stays in the store, under the token that was rolled back,
// until that is released. A forward that redoes it (Entry.Redoes) ignores the step's parameters: it
// stages a copy of what is kept, compares it, and is then a forward like any other, with its own
// record and fence. So a redo that fails half way is undone, and can be tried again. It is refused
// if a target is not as the rollback left it, or if nothing was kept or it has been released. A
// redo gives the folders that it changes the times they had before the rollback.
//
// A hard link between two files in a restored folder becomes two files.
//
// # Damage and full disks
//
// Originals and what is kept for a redo are compared with their digests before anything is touched,
// documents of the journal whenever they are read: DamagedRecord names the file. A full disk is an
// error that names the file and is retried; nothing is left half done, since only a rename ever
// changes a target. An undo needs a few kilobytes.
//
// What does not come back: an inode's change time (ctime), which no program can set, and access
// times.
//
// # Requirements
//
// Linux, and a local filesystem that can exchange two files (ext4, xfs, btrfs, tmpfs): New tries
// it. A mount point in a root is another filesystem: make it a root of its own.
package file
