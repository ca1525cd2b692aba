-- name: free
-- Pages of the file that hold nothing, and the size of a page.
SELECT freelist_count, page_size FROM pragma_freelist_count, pragma_page_size;

-- name: reclaim
-- Gives some of those pages back to the file system: about 8 MB, so that nobody else's write waits long.
PRAGMA incremental_vacuum(2000);
