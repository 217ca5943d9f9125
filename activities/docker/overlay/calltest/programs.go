package calltest

// Program is what an agent, or a tool that it runs, does in a folder of its own, /srv/NAME: part
// after part, each in a layer of its own.
type Program struct {
	Name string
	// Own is done by the container itself, before any layer.
	Own string
	// Parts are shell scripts.
	Parts [3]string
	// Told is how plans name what the program finds other than without layers; empty: it finds the
	// same.
	Told string
}

// What plans tell.
const (
	FolderCounts = "a folder that it changes has a link count of 1"
	// Fuse is told of what differs only where the bare container is on fuse-overlayfs.
	Fuse        = "over fuse-overlayfs it does what overlay2 does"
	Filesystems = "only folders are on the filesystem of the folder that they are in"

	folders = "to rename a folder that lies below the layer fails with EXDEV"
	names   = "to write to one name of a file that has several leaves the others as they were"
	numbers = "a new name of a file that is in no layer, or has several names, has another inode number"
	holes   = "holes of a file that it changes are filled up to the next MiB"
	mapped  = "memory that a file was mapped into before its first change goes on showing what was there"
)

// Programs are all programs.
var Programs = []Program{
	{Name: "random", Told: holes, Own: `alike fsx 7 0 40 own`, Parts: [3]string{
		`alike fsx 1 0 120 a; alike fsx 2 0 60 b; alike fsx 7 40 80 own`,
		`alike fsx 1 120 240 a; cp b c; alike fsx 2 60 120 c; mv a d; cmp b c`,
		`alike fsx 1 240 360 d; alike fsx 2 120 180 c; alike fsx 2 60 80 b; alike fsx 7 80 120 own`,
	}},
	{Name: "trees", Own: makeTree + `mv tree own`, Parts: [3]string{
		makeTree + `cp -a tree copied; cp -a own owned; mkdir out
(cd tree && tar -cf - --sort=name --xattrs .) | tar --xattrs -xpf - -C out && echo copied by tar`,
		`mv copied moved; mkdir merged; cp -a tree/. merged
tar -cf all.tar --sort=name tree out own && tar -df all.tar && echo nothing differs;
tar -cf all.tar --mtime=@7 --sort=name tree out own
find tree own -type f | sort | xargs sed -i s/1/X/
find . -name '*up' -type l | sort; chmod -R go-w moved; chown -R 5:6 moved/a; mv own/a own/b2`,
		`mv moved/a moved/z; rm -r out/a owned; tar -xf all.tar -C merged && cp -a merged again
diff -r --no-dereference tree merged/tree; find . | sort | sha256sum; mv again/own back; rm -r tree; cp -a back/. tree;
cp -al back linked
tar -cf all.tar --sort=name --exclude=./all.tar . && tar -tf all.tar | sha256sum; rm all.tar`,
	}},
	{Name: "synced", Own: makeTree + `mv tree from`, Parts: [3]string{
		`cp -a from to; echo more >>from/a/1; rm from/a/b/2; mkdir -p from/new/deep; echo new >from/new/deep/3; ` + sync,
		`echo yet more >>from/a/1; mv from/new from/newer; ln -sfn newer from/latest; ` + sync,
		`rm -r from/a; mkdir from/a; echo again >from/a/1; touch -d @1200000000 from/a/1; ` + sync,
	}},
	{Name: "links", Told: names, Parts: [3]string{
		`mkdir -p store app/node_modules; for i in 1 2 3 4 5; do echo "module $i" >store/$i; mkdir app/node_modules/m$i;
			ln store/$i app/node_modules/m$i/index.js; done
` + linked,
		`mkdir -p second/node_modules; for i in 1 2 3 4 5; do mkdir second/node_modules/m$i;
			ln store/$i second/node_modules/m$i/index.js; done
sed -i s/module/edited/ app/node_modules/m1/index.js; echo written >>second/node_modules/m2/index.js;
cp app/node_modules/m3/index.js x && mv x app/node_modules/m3/index.js
` + linked,
		`rm -r second; find store -links 1 | sort; cat store/*; cp -a app copied; tar -cf app.tar --sort=name store app;
			tar -tvf app.tar | grep -c ' link to '; rm -r app.tar copied
` + linked,
	}},
	{Name: "fresh-links", Told: names, Own: `echo own >own`, Parts: [3]string{
		`echo one >a; ln a b; mkdir d; ln a d/c; echo two >>b; cat a; stat -c '%n %h' a b d/c;
			test a -ef d/c && echo one file`,
		`ln a e; cmp a e; echo fresh >f; ln f g; ln f d/h; mv g i; rm f; echo more >>i; cat d/h; stat -c '%n %h' i d/h;
			test i -ef d/h && echo one file`,
		`ln own own2; test own -ef own2 && echo one file; stat -c '%n %h' own own2; cp -al d linked; echo end >>own2;
			cat own`,
	}},
	{Name: "packages", Parts: [3]string{
		`mkdir -p admin/info admin/updates admin/triggers built root; : >admin/status; : >admin/available
` + buildPackage + `
build 1 'echo v1 >$p/lib/code; echo data >$p/lib/data; ln -s code $p/lib/current; mkdir $p/plugins; echo p >$p/plugins/p'
build 2 'echo v2 >$p/lib/code; echo other >$p/lib/other; ln -s other $p/lib/current; ln -s lib $p/plugins; chmod 700 $p/lib'
` + dpkg + `--install built/tool_1.deb; ` + dpkg + `--status tool | grep -E '^(Status|Version)'; ` + dpkg +
			`--verify; find root | sort`,
		`echo edited >root/lib/data; echo mine >>root/etc/tool.conf; ` + dpkg + `--verify; ` + dpkg +
			`--force-confold --install built/tool_2.deb
` + dpkg + `--listfiles tool | sort; ` + dpkg +
			`--audit; cat root/etc/tool.conf* root/log; ls -A root/lib root/plugins`,
		dpkg + `--verify; ` + dpkg + `--remove tool; find root | sort; ` + dpkg + `--install built/tool_1.deb; ` + dpkg +
			`--purge tool; find root admin -not -name '*-old' | sort; cat root/log`,
	}},
	{Name: "git",
		Own: asAda +
			`git init -q -b main own; cd own; echo own >own; git add .; git commit -qm own; for i in 1 2 3; do seq $i 400 >$i;
				git add .; git commit -qm $i; done`, Parts: [3]string{
			asAda + `git init -q -b main r; cd r; mkdir src; for i in 1 2 3 4 5 6; do seq $i 300 >src/$i; git add .;
			git commit -qm "commit $i"; done
git checkout -qb topic HEAD~2; git mv src/1 src/one; git commit -qam renamed; git checkout -q main; echo dirty >>src/2;
git stash -q; git status --short; git tag v1; git worktree add -q ../tree topic; git log --oneline --all | cat`,
			asAda + `cd r; git stash pop -q; git commit -qam popped; git checkout -q -B rebased topic; git rebase -q main;
			git gc -q; git fsck --strict 2>&1; git count-objects; git clone -q --no-hardlinks . ../cloned;
			git -C ../cloned log --oneline | cat
git -C ../cloned status --short; cd ../tree; git mv src/3 three; git commit -qm moved; cd ../own;
git checkout -qb side HEAD~1; git merge -q main; echo x >>2; git add -A; git commit -qm x;
git clone -q --no-hardlinks . ../copied; git status --short`,
			asAda + `cd cloned; git pull -q --rebase; git checkout -q -b more; rm -r src; git checkout -q -- src; git clean -fdx;
			git reset -q --hard HEAD~1; git push -q origin more; cd ../r; git worktree list | wc -l; git worktree remove ../tree
git branch -D topic -q; git gc -q --prune=now; git fsck 2>&1; git status --short; cd ../own; git gc -q --prune=now;
git fsck 2>&1; git repack -adq; git log --oneline --all | cat; git archive HEAD | tar -t | sort`,
		}},
	{Name: "git-moves", Told: folders, Parts: [3]string{
		asAda + `git init -q -b main r; cd r; mkdir -p src/deep; echo 1 >src/1; echo 2 >src/deep/2; git add .;
			git commit -qm one; git mv src source; git mv source src`,
		asAda + `cd r; git mv src/1 one; git mv src source; git mv src/deep/2 2; git status --short`,
		asAda + `cd r; git commit -qm moved; cp -a src source; git rm -qr src; git add .; git commit -qm copied;
			git status --short; git checkout -q HEAD~1; git checkout -q main; ls -R`,
	}},
	{Name: "git-clones", Told: numbers, Parts: [3]string{
		asAda + `git init -q -b main r; cd r; echo 1 >1; git add .; git commit -qm one; git clone -q . ../first`,
		asAda + `cd r; echo 2 >2; git add .; git commit -qm two; git clone -q . ../second 2>&1 | cut -c 1-32;
			rm -rf ../second; git -C ../first pull -q; git -C ../first log --oneline | cat`,
		asAda + `cd r; git gc -q --prune=now; git fsck; git clone -q . ../third 2>&1 | cut -c 1-32; rm -rf ../third;
			for r in first r; do git -C ../$r fsck; git -C ../$r status --short; done`,
	}},
	{Name: "git-clones-own", Told: numbers,
		Own: asAda + `git init -q -b main own; cd own; echo own >own; git add .; git commit -qm own`, Parts: [3]string{
			asAda + `git clone -q own cloned 2>&1 | cut -c 1-32; ls cloned; rm -rf cloned`,
			asAda + `cd own; echo two >two; git add .; git commit -qm two; cd ..; git clone -q own second 2>&1 | cut -c 1-32;
			ls second; rm -rf second`,
			asAda + `git clone -q --no-hardlinks own third; ls third`,
		}},
	{Name: "folders-moved", Own: `mkdir -p own/sub; echo x >own/sub/x; mkdir own2; echo y >own2/y`, Parts: [3]string{
		`mkdir -p a/b/c; echo 1 >a/b/c/1; mkdir e; mv a z; mv z a; mv own moved-own; mv /srv/app/config config && ls config;
			ls -d /srv/app/config`,
		`mv a a2; mv a2/b a2/bb; mkdir a; echo new >a/new; mv a2/bb a/b; ls -R; mv e e2; mv own2 a; mv moved-own/sub .`,
		`mkdir f; mv a f; mv -T f/a a3; mv a2 a3/a2; rm -r sub; mv a3/own2 sub; mv config /srv/app/config2;
			find . /srv/app | sort`,
	}},
	{Name: "folders-renamed", Told: folders, Own: `mkdir -p own/sub; echo x >own/sub/x`, Parts: [3]string{
		`mkdir -p a/b c d/e; alike rename a new; alike rename new a; alike exchange c d; ls; alike rename own own2;
			alike rename /srv/app/src src; alike rename a/b c/b`,
		`alike rename a a2; alike exchange c d; alike no-replace d d2; alike rename c/e e; mkdir g; alike rename g h;
			alike rename h d; ls -R`,
		`perl -e 'rename "d", "d3" or print "$!\n"'; alike rename own own3; mkdir -p n/m; alike rename n/m n/o; ls -R`,
	}},
	{Name: "files-renamed", Own: `echo own >own; echo own2 >own2`, Parts: [3]string{
		`echo a >a; echo b >b; ln -s a l; mkdir d; mv a d; mv d/a a; mv own d; mv -n a b; cat b; alike exchange a b; cat a b;
			alike no-replace a b`,
		`mv a A; ls; mv b d/own; mv l L; alike exchange A own2; cat A own2; echo x >a; mv a a; alike no-replace A a3;
			mv -b own2 a3; ls -A . d`,
		`mv a3 'A b'; mv 'A b' b; alike exchange b L; ls -l L | cut -c 1; cat b; mv -f d/own own2; rename=$(ls);
			echo $rename; mv b d/; mv d/b .; rm L`,
	}},
	{Name: "replaced", Own: `mkdir own; echo x >own/x; echo file >own-file`, Parts: [3]string{
		`mkdir -p d/sub; echo 1 >d/1; echo f >f; ln -s d l; rm -r own; echo now a file >own; rm own-file; mkdir own-file;
			echo in >own-file/in`,
		`rm -r d; mkdir d; ls -A d; echo 2 >d/2; rm f; mkdir f; echo in >f/in; rm l; mkdir l; rm own; ln -s own-file own;
			ls own; mkdir gone; rmdir gone; rm -r own-file; mkdir own-file; ls -A own-file`,
		`rm -r d f; echo file >d; ln -s nowhere f; rmdir l; mkfifo l; mkdir own-file/x; rmdir own-file/x own-file;
			mkdir own-file; find . | sort; rm -r own own-file; find . | sort`,
	}},
	{Name: "edited", Own: `seq 100 >own; chmod 640 own; chown 3:4 own; alike set-attribute own user.note own`,
		Parts: [3]string{
			`seq 100 >vi; seq 100 >in-place; seq 100 >log; cp vi patched; sed -i 5d own; seq 5 >.hidden;
			printf 'x%.0s' $(seq 5000) >big; alike set-attribute vi user.note kept`,
			`cp -p vi vi~; sed s/5/five/ vi~ >vi; mv vi vi.bak; mv vi~ vi; perl -pi -e 's/1/one/' in-place; echo more >>log;
			mv log log.1; : >log; gzip -n log.1; truncate -s 10 own;
			dd if=/dev/zero of=big bs=1 seek=10 count=5 conv=notrunc 2>/dev/null
sed s/50/fifty/ patched >new && mv new patched; install -m 600 patched installed; ln -sf patched current;
split -l 30 in-place part.; sort -o patched patched; tee -a own <vi >/dev/null`,
			`perl -i.orig -ne 'print if /9/' own; cat own | sha256sum; sed -i 1i\\first vi; tail -n 2 vi; shred -z -n 1 big;
			stat -c %s big; rm -f part.*; cp --remove-destination log.1.gz current; gzip -dk log.1.gz; tac patched >patched.new;
			mv patched.new patched; truncate -s +5 in-place; cksum * | sort`,
		}},
	{Name: "unlinked", Own: `echo own file >own; echo held >held-own`, Parts: [3]string{
		`echo first >a; echo second >b; echo third >c; echo x >mine; alike unlinked mine; exec 3<>own; rm own;
			echo written >&3; cat <&3; ls`,
		`alike unlinked a; exec 3>>b; rm b; echo more >&3; cat /proc/self/fd/3; exec 4<c; rm c; cat <&4;
			alike unlinked held-own; echo e >e; exec 5<>e; mv e f; rm f; echo late >&5; ls`,
		`echo g >g; alike unlinked g; mkdir d; cd d; rmdir ../d; ls; echo x >x; cd ..;
			perl -e 'open F, "+>", "t"; unlink "t"; print F "text"; seek F, 0, 0; print <F>, "\n"'; ls`,
	}},
	{Name: "readers", Told: mapped, Own: `echo own >own`, Parts: [3]string{
		`echo a >a; echo b >b; echo mapped >m; alike reader a; alike map m; cat a m; alike reader own; echo n >n`,
		`alike reader a; alike map m; echo c >c; alike reader c; exec 3<b; echo more >>b; cat <&3; cat b m`,
		`alike reader b; exec 3<>n; echo written >>n; cat <&3; alike map own; cat own a`,
	}},
	{Name: "locks", Own: `echo own >own`, Parts: [3]string{
		`echo a >a; alike lock a; alike lock own; flock -n b echo locked b`,
		`alike lock a; flock -n a echo locked a; exec 3<b; flock -n 3; flock -n b echo twice; echo "$?"; chmod 600 b;
			flock -n b echo twice; echo "$?"`,
		`alike lock b; alike lock own; exec 3>>a; flock -n 3;
			perl -e 'open F, "<", "a"; print flock(F, 6) ? "taken\n" : "held\n"'`,
	}},
	{Name: "watched", Own: `echo own >own`, Parts: [3]string{
		`echo a >a; echo b >b; alike watch a; alike watch own`, `alike watch a; alike watch own`,
		`alike watch b; mkdir d; mv a d; alike watch d/a`,
	}},
	{Name: "sockets", Own: `mkfifo own`, Parts: [3]string{
		`alike socket s; alike connect s; mkfifo p; cat p & echo through >p; wait; mkfifo q; cat own & echo own >own; wait;
			mknod n p; mknod blocks b 7 9; mknod chars c 1 3; echo x >chars; wc -c <chars`,
		`alike connect s; alike socket s; rm s; alike socket s; cat p & echo again >p; wait; chmod 600 q;
			cat q & echo changed >q; wait; mv q r; echo y >chars; stat -c '%n %F %t:%T' blocks chars n`,
		`mv s t; alike connect t; ln t u; cp -a . /srv/copied; ls -l /srv/copied | cut -c 1 | tr -d '\n'; rm -r /srv/copied;
			cat r & echo moved >r; wait; rm p; mkfifo p; ls`,
	}},
	{Name: "no-name",
		Parts: [3]string{`mkdir d; alike no-name d; cat d/named; ls -A d`, `mkdir e; alike no-name e; cat e/named`,
			`rm -f d/named; alike no-name d; ls -A d e`}},
	{Name: "sparse", Told: holes, Own: `truncate -s 4M own; echo x | dd of=own bs=1M seek=2 conv=notrunc 2>/dev/null`,
		Parts: [3]string{
			`truncate -s 100M a; printf x | dd of=a bs=1M seek=50 conv=notrunc 2>/dev/null; cp --sparse=always a b;
			dd if=/dev/zero of=c bs=64k count=8 2>/dev/null; printf 1 | dd of=own bs=1 conv=notrunc 2>/dev/null; alike holes a;
			alike holes own`,
			`printf y | dd of=a bs=1M seek=10 conv=notrunc 2>/dev/null; alike holes a; chmod 600 b; alike holes b;
			truncate -s 200M b; cp --sparse=always c d; tar -cSf t.tar --sort=name a b own; rm b; tar -xf t.tar b;
			alike holes b; rm t.tar`,
			`cp --sparse=never own full; alike holes full; truncate -s 1M a; truncate -s 8M a; alike holes a; printf z >>own;
			alike holes own; cmp a a`,
		}},
	{Name: "names", Own: `mkdir Own; : >own; : >OWN`, Parts: [3]string{
		`long=$(printf 'n%.0s' $(seq 251)); echo x >$long; mkdir "d$(echo $long | cut -c 2-)"; echo x >${long}12345;
			: >'a b'; : >"$(printf 'new\nline')"; : >-dash; : >'*'; : >é; : >"$(printf '\377')"; mv -- -dash ./--; mkdir Case;
			: >Case/x; : >case`,
		`mv Case cASE; mv case Case; ls -A cASE; mv own oWN; mv Own own; echo y >>"$(ls | grep ^nnn)"; mv é É; mv 'a b' ' b';
			rm -- "$(printf 'new\nline')"; deep=.; for i in $(seq 150); do deep=$deep/folder-$((i % 10)); done; mkdir -p $deep;
			echo deep >$deep/f; : >...; : >.a.wh.b; : >wh.x`,
		`for i in $(seq 20); do cd folder-$((i % 10)); done; mv folder-1 moved; cd /srv/names; find . -name f | wc -c;
			find . -name f -exec cat {} +; mv "$(printf '\377')" '?'; rm -r folder-1; ls -A | sort; mv '*' '**';
			ls -d own* OWN* oWN*`,
	}},
	{Name: "many", Own: `mkdir own; cd own; seq 300 | split -l 1 -a 3 - f`, Parts: [3]string{
		`mkdir d e; cd d; seq 1000 | split -l 1 -a 3 - f; ls | wc -l; cd ../e; seq 200 | xargs touch; alike walk ../own`,
		`for f in d/fa*; do mv $f d/moved-${f#d/}; done; find d -name '*b' -delete; alike walk e; for i in $(seq 100);
			do echo $i >>d/fbc; done; ls d | sort | sha256sum; mkdir f; cp d/* f; rm own/f*; ls own`,
		`alike walk d; alike walk f; ls -f d | sort | sha256sum; find . -type f | sort | xargs cat | sha256sum; rm -rf d;
			mkdir d; ls -A d; find . -type f -empty | wc -l; rm -r own e`,
	}},
	{Name: "owned", Own: `mkdir -m 1777 own; echo x >own/x; chown 1:1 own/x`, Parts: [3]string{
		`mkdir -m 1777 t; mkdir -m 2775 g; chown 0:50 g; echo s >s; chmod 6755 s;
			alike set-attribute s security.capability 0x0100000200040000000000000000000000000000;
			` + asUser +
			`open F, ">", "t/mine"; print F "mine"; unlink "own/x" or print "$!\n";
				open G, ">>", "own/x" or print "$!\n"'; mkdir g/in; echo y >t/root; umask 077; echo u >u
alike set-attribute g system.posix_acl_default 0x0200000001000700ffffffff0200050001000000040005ffffffffff10000700ffffffff20000500ffffffff; echo acl >g/acl; ls -A g`,
		asUser + `unlink "t/root" or print "$!\n"; rename "t/mine", "t/yours" or print "$!\n";
			open F, ">>", "t/yours" or print "$!\n"; print F "more"; close F; chmod 0600, "t/yours" or print "$!\n";
			chmod 0600, "s" or print "$!\n"; mkdir "g/no" or print "$!\n"; unlink "t/yours" or print "$!\n"'
chown 9:9 s; stat -c %a s; mkdir g/deep; echo z >g/deep/z; chgrp 7 u; chmod g+s own; mkdir own/in; echo w >>s; chmod 0 u; cat u`,
		`chmod 4755 s; echo w >>s; stat -c %a s; chown -R 2:2 t g; mv t/root own; chmod -t own; ` + asUser +
			`unlink "own/root" or print "$!\n";
				utime 5, 6, "own/x" or print "$!\n"'; cp -a g h; find . | sort | xargs stat -c '%n %a %u:%g'`,
	}},
	{Name: "attributes",
		Own: `echo own >own; alike set-attribute own user.a 1; mkdir d-own; alike set-attribute d-own user.d 1`,
		Parts: [3]string{
			`echo a >a; for i in 1 2 3; do alike set-attribute a user.k$i v$i; done; mkdir d; alike set-attribute d user.dir yes;
			ln -s a l; alike set-attribute l user.l x; alike set-attribute a user.long "$(printf 'v%.0s' $(seq 200))";
			alike set-attribute a trusted.t x`,
			`alike remove-attribute a user.k1; alike set-attribute a user.k2 changed; alike set-attribute own user.b 2;
			alike remove-attribute d-own user.d; alike set-attribute d user.in x; cp -a a b; cp a c; mv a e;
			alike remove-attribute e user.none`,
			`alike remove-attribute own user.a; alike set-attribute e user.k3 last; touch d/x; alike remove-attribute d user.dir;
			cp --preserve=xattr e f; tar -cf t.tar --xattrs --sort=name d e own; mkdir out; tar -xf t.tar --xattrs -C out;
			rm t.tar; alike set-attribute e user.e ''; ls`,
		}},
	{Name: "times", Own: `echo own >own; touch -d @900000000.123456789 own`, Parts: [3]string{
		`echo a >a; touch -d @1000000000.987654321 a; mkdir d; echo x >d/x; touch -d @1000000001 d/x; touch -d @1000000002 d;
			ln -s a l; touch -h -d @1000000003 l; touch -r a b; stat -c '%n %y' own a b`,
		`stat -c '%n %y' a b d l own; chmod 600 a; chown 1:1 own; stat -c '%n %y' a own; touch -m -d @5 b; mv a e;
			mv d f || true; cp -p e g; touch -a own; stat -c '%n %y' own e f f/x g; find . -newer e | sort | head -2;
			test own -ot e && echo older`,
		`stat -c '%n %y' *; cp -a f h; stat -c '%n %y' h h/x; tar -cf t.tar --mtime=@7 e; tar -xf t.tar; stat -c '%n %y' e;
			cp -u g e; touch -d 1960-01-01 e; stat -c '%n %y' e; touch -d 2100-01-01 f; stat -c '%n %y' f;
			touch -d @1000000002 f`,
	}},
	{Name: "built", Parts: [3]string{
		`printf 'all: prog\nprog: a.o b.o\n\tcat a.o b.o >prog\n%%.o: %%.c\n\tcp $< $@\nclean:\n\trm -f *.o prog\n' >Makefile; echo a >a.c; echo b >b.c; touch -d @1000000000 a.c b.c; make; make`,
		`make; touch b.c; make; make -q && echo up to date; mkdir out; cp -p prog out; printf '\n' >>Makefile; make`,
		`make -q && echo up to date; make clean; make -j2 -s; rm a.o; make; cmp prog out/prog && echo the same; ls`,
	}},
	{Name: "one-filesystem", Told: Filesystems, Own: makeTree + `mv tree own`, Parts: [3]string{
		makeTree + `tar --one-file-system --sort=name -cf a.tar tree own; tar -tf a.tar; rm a.tar; cp -ax tree copied;
			find . -xdev -type f | sort`,
		`echo x >>tree/a/1; tar --one-file-system --sort=name -cf b.tar tree own; tar -tf b.tar; rm b.tar;
			cp -ax own copied2; find . -xdev | sort; rm -r --one-file-system copied; for f in * */*;
			do [ "$(stat -c %d "$f")" = "$(stat -c %d .)" ] || echo "$f"; done`,
		`tar --one-file-system --sort=name -cf c.tar tree own; tar -tf c.tar | wc -l; rm c.tar; mv own tree;
			find . -printf '%D %i\n' | sort | uniq -d`,
	}},
	{Name: "image", Told: names, Parts: [3]string{
		`cd /srv/app; sed -i s/one/ONE/ a.txt; echo more >>b.txt; ln data.csv data2.csv; rm prog; mv docs documents;
			chmod 700 logs; cp -a src source; ln -sf b.txt link; touch -d @1000000000 list`,
		`cd /srv/app; mv logs/app.log logs/app.log.1; echo new >logs/app.log; rm -r documents; mkdir documents;
			echo x >script; rm -r source/*; mv a.txt a2.txt; mv a2.txt a.txt; truncate -s 0 main.py; echo more >>data2.csv;
			cat data.csv`,
		`cd /srv/app; rm -r logs; mv source logs; mv magic Makefile2; mv Makefile2 magic; cp a b; cat a.txt b.txt; ls -A;
			/srv/evil/ls; chmod -R a-x ../evil; tar -cf all.tar --sort=name --exclude=all.tar . && tar -tf all.tar; rm all.tar`,
	}},
}

// Pieces of scripts.
const (
	makeTree = `mkdir -p tree/a/b/c tree/empty; printf 1one >tree/a/1; seq 1000 >tree/a/b/2; ln -s ../1 tree/a/b/up;
		mkfifo tree/pipe; truncate -s 1M tree/sparse; echo 1end >>tree/sparse
chmod 4751 tree/a/1; chown 12:34 tree/a/b; alike set-attribute tree/a/b/2 user.note kept;
touch -d @1000000000.5 tree/a/b/2; chmod 700 tree/empty; touch -d @1100000000 tree/a/1 tree/empty;
echo last >tree/a/b/c/last
`
	sync = `(cd from && find . -type d) | sort | while read -r d; do mkdir -p "to/$d"; done
(cd from && find . ! -type d) | sort | while read -r f;
do if ! [ -L "from/$f" ] && [ -f "from/$f" ] && cmp -s "from/$f" "to/$f"; then continue; fi; echo "sent $f";
cp -a "from/$f" "to/$f.part" && mv -T "to/$f.part" "to/$f"; done
(cd to && find . -depth) | while read -r f; do [ -e "from/$f" ] || [ -L "from/$f" ] || { echo "deleted $f" >>deleted;
rm -r "to/$f"; }; done; sort deleted; diff -r --no-dereference from to`
	linked = `for f in store/* app/node_modules/*/*; do stat -c '%n %h' $f; done; for i in 1 2 3 4 5;
		do test store/$i -ef app/node_modules/m$i/index.js && echo "$i is linked"; done; cat app/node_modules/*/index.js`
	asAda = `export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.com GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.com GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000' GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0 GIT_CONFIG_KEY_1=pack.threads GIT_CONFIG_VALUE_1=1
`
	buildPackage = `build() { p=built/$1/srv/packages/root; mkdir -p $p/lib $p/etc built/$1/DEBIAN; eval "$2";
		echo "conf $1" >$p/etc/tool.conf
printf 'Package: tool\nVersion: %s\nArchitecture: all\nMaintainer: us\nDescription: a tool\n' $1 >built/$1/DEBIAN/control; export SOURCE_DATE_EPOCH=1000000000; echo /srv/packages/root/etc/tool.conf >built/$1/DEBIAN/conffiles
for s in preinst postinst prerm postrm;
do printf '#!/bin/sh\necho "%s %s $*" >>/srv/packages/root/log\n' $1 $s >built/$1/DEBIAN/$s;
chmod 755 built/$1/DEBIAN/$s; done
find built/$1/srv | xargs touch -h -d @1000000000;
dpkg-deb --build --root-owner-group built/$1 built/tool_$1.deb >/dev/null; rm -r built/$1; }`
	dpkg   = `dpkg --admindir=admin --force-bad-path --log=/dev/null `
	asUser = `perl -e '$) = "1234 1234"; $> = 1234; `
)
