// Package folder is the world of folders as a whole: folder.checkpoint keeps what a folder holds,
// and folder.restore makes it hold that again, exactly. What was made since goes, what was changed
// or removed comes back, and what is the same is not touched.
//
//	w, err := folder.New(folder.Config{State: "/var/lib/unwind/folder", Roots: []string{"/srv/app"}})
//
//	- id: before
//	  uses: folder.checkpoint
//	  with: { path: /srv/app/uploads }
//	- id: back
//	  uses: folder.restore
//	  with: { path: /srv/app/uploads, checkpoint: "${{ steps.before.outputs.checkpoint }}" }
//
// # Where it is kept
//
// In a store of its own in the worker's state, never in the folder or beside it: see package
// snapshot. A second checkpoint of a folder takes what has changed since the first. A checkpoint is
// there until its step is undone, or its record is released when the task's rollback window has
// closed.
//
// With git: true, the folder is a git repository. What git ignores is no part of the checkpoint, by
// the rules that the checkpoint has itself; objects are only added to; and an index of which git has
// refreshed what it remembers of the files' times is not drift.
//
// # Volumes and containers
//
// A folder may also be that of a Docker volume, or the one in which an engine keeps what has
// changed in the files of a container (the upper folder of its overlay). They are read in place,
// which changes nothing in the engine. A container is put back only while it is stopped, a volume
// while no container runs that may write to it: that is looked at before and after, by the engine's
// word. Layers of container.exec that hold something are not in that folder, and are refused.
//
// A checkpoint of a container also has what the engine says of it, and its image a name. Where
// another container has its name by then, which was not made in the same way, or none has, a restore
// makes it again, fills it, and compares all that the engine says of both. The other one is set
// aside (package aside), and brought back by the undo, or by a later restore that goes forward to
// it. With absent: true, it is kept that there is no container.
//
// # How a restore is undone
//
// Before it touches anything it keeps what the folder holds, as a checkpoint does. The undo puts
// back the paths that the restore has changed. What others have changed at one of them since, or
// put into a folder that would go, is drift: it is shown, and nothing is touched. A force
// overwrites exactly what was shown. Other paths are not looked at.
//
// All that a restore or its undo puts into the folder, or takes out, is renamed from or to a stage
// beside the folder, .unwind-TOKEN, that is gone afterwards. An undo takes the stage of a forward
// away, so that nothing of it can act any more.
//
// # What does not come back
//
// Access times, times of creation and inode numbers of what is put back, with these its hard links
// to names outside of the folder, and room that was reserved for a file. What only its owner or
// root may set is refused where the worker is not that.
package folder
