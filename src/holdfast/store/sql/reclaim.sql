-- name: get_free_pages
-- The number of unused pages of the file, and the page size.
SELECT freelist_count, page_size FROM pragma_freelist_count, pragma_page_size;

-- name: release_pages
-- Returns some of those pages to the file system: about 8 MB, so that other writes do not wait long.
PRAGMA incremental_vacuum(2000);
