// Package file is the world of files: file.write and file.delete, which an undo takes back to the last nanosecond of a
// file's time.
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
// Only what is below the allowed roots, through os.Root: no symlink and no .. leads out of them. A step changes one root.
// file.write follows a symlink at the end of a path, file.delete deletes the link itself. A file that is replaced hands on
// its owner, its mode (without setuid and setgid) and its extended attributes. A new file has mode 0644 whatever the umask
// and the folder's default ACL, and the folder's group where that has the setgid bit; folders that are missing are made. What is
// deleted may be a folder with anything in it: symlinks, hard links, pipes, sockets, devices.
//
// Inline content stands in the task's history. What is large or private is named as source; its content, that of files
// which only their owner may read, and that which holds a secret, are in no plan and no drift: only sizes and digests are.
//
// # How a change is made
//
// Each root has a store, ROOT/.unwind (mode 0700, and ignored by git), on the same filesystem:
//
//	.unwind/journal            see package journal
//	.unwind/stage/TOKEN/...    what a forward is about to put into place; afterwards, the originals
//	.unwind/undo/TOKEN/...     the same, once an undo has taken it away from the forward
//	.unwind/redo/TOKEN/...     what a rollback has taken away, for a redo
//	.unwind/trash              what may be removed
//
// The new content is staged and made durable, with owner, mode, times and extended attributes. The checks look at it. The
// record is written: what is staged, and what stands at the target. Then one renameat2 lets the two trade places
// (RENAME_EXCHANGE; or RENAME_NOREPLACE where one of them is nothing), and what came out is compared with the record: had
// someone else been at the target since, it is given back. Nothing is written to a target after that. So the original
// itself is what is kept, not a copy of it: with its inode, its hard links and whoever has it open, at the price of a
// rename, whatever its size. A file in a new folder is one rename too, that of the topmost new folder.
//
// # How it is taken back
//
// By the same call, backwards. The staged file's path is a ticket: the kernel looks it up when the call runs. An undo first
// moves the folder stage/TOKEN away and leaves a plain file in its place, a tombstone; from then on every rename of a late
// forward fails, also that of a process that was stopped just before it, and nobody has waited for a lock. Attempts of an
// undo take the tickets from each other by the same means, and the one that comes to its end leaves a tombstone for all
// others before it returns.
//
// An undo looks at all of a step's files before it touches the first. What is not as the step left it is drift, shown as a
// unified diff, and untouched; in a folder that the step made, that is also what others have put there. An original that
// is not as recorded is DamagedRecord, and nothing is touched. In the end the folders in which files were changed get their
// times back, unless someone else has worked in them since; where the worker may not set a folder's time, that is a loss,
// and named.
//
// # How it is done again
//
// A rollback after the end (Decision.Redoable) keeps what it takes away, whatever that is: also what others had changed in
// it, where it was forced. It stays in the store, under the rolled back token, until that is released. A forward that
// redoes it (Entry.Redoes) does not look at the step's parameters: it stages a copy of what is kept, compares it, and then
// is a forward like any other, with its own record and fence. So a redo that fails half way is undone, and can be tried
// again. It is refused where a target is not as the rollback has left it, and where the rollback has kept nothing or what
// it kept is released. A redo gives the folders that it changes the times that they had before the rollback.
//
// A hard link between two files in a folder that is put back becomes two files.
//
// # What is damaged, what is full
//
// Originals and what is kept for a redo are compared with their digests before anything is touched, documents of the
// journal whenever they are read: DamagedRecord names the file. A full disk is an error that names the file too and is
// tried again; nothing is half done, since nothing but a rename ever changes a target. An undo needs a few kilobytes.
//
// What does not come back: the time of the last change of an inode (ctime), which no program can set, and access times.
//
// # Requirements
//
// Linux, and a local filesystem that can exchange two files (ext4, xfs, btrfs, tmpfs): New tries it. A mount point below a
// root is a filesystem of its own: make it a root of its own.
package file
